// MNIST in its published form: four IDX files, plain or compressed by gzip.
//
// An IDX file is a big-endian header (a magic number, then the length of each dimension) and one byte for each element.
#pragma once

#include <filesystem>

#include "dataset.hpp"

namespace mnist {

/// Reads one file of images and its file of labels. Unpacks and checks both before it returns.
///
/// Throws FileError that names the file if it cannot be read, has damaged gzip data or a wrong magic number, is
/// truncated, or has bytes after the end. Also throws FileError if images are not 28 x 28 or a label is above 9. Throws
/// it, too, if the numbers of images and labels differ, or there is no image.
Dataset read_idx(const std::filesystem::path& images, const std::filesystem::path& labels);

/// Reads train-images-idx3-ubyte, train-labels-idx1-ubyte and the two t10k- files from `folder`, each plain or with
/// .gz. Throws FileError as read_idx(), or with the name of the missing file.
Data load_idx(const std::filesystem::path& folder);

}  // namespace mnist
