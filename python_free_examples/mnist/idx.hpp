// MNIST as it is published: four IDX files, plain or gzip-compressed.
//
// An IDX file is a big-endian header (a magic number, then the length of each dimension) and one byte per element.
#pragma once

#include <filesystem>

#include "dataset.hpp"

namespace mnist {

/// Reads one file of images and its file of labels. Both are unpacked and checked before anything is returned.
/// Throws FileError, naming the file: it cannot be read, damaged gzip, wrong magic number, images that are not 28 x 28,
/// truncated, bytes after the end, a label above 9, unequal numbers of images and labels, no image at all.
Dataset read_idx(const std::filesystem::path& images, const std::filesystem::path& labels);

/// Reads train-images-idx3-ubyte, train-labels-idx1-ubyte and the two t10k- files, each plain or with .gz, from
/// `folder`. Throws FileError as read_idx, or naming the file that is missing.
Data load_idx(const std::filesystem::path& folder);

}  // namespace mnist
