// Reader of the MNIST digits in their published form: four IDX files, plain or compressed by gzip.
//
// An IDX file is a big-endian header (a magic number, then the length of each dimension) and one byte for each element.
#pragma once

#include <filesystem>

#include "dataset.hpp"

namespace mnist {

/// Reads a file of images and the file of their labels, and checks both.
///
/// Throws FileError, which names the file, in these cases. The file cannot be read, has damaged gzip data or a wrong
/// magic number, is truncated, or has bytes after the end. Images are not 28 x 28 or a label exceeds 9. The file has no
/// images, or another number of labels.
Dataset read_idx(const std::filesystem::path& images, const std::filesystem::path& labels);

/// Reads the four files from `folder`: train-images-idx3-ubyte, train-labels-idx1-ubyte, and the same names with t10k
/// for train. Each name may end in .gz. Throws FileError as read_idx() does, or with the name of a missing file.
Data load_idx(const std::filesystem::path& folder);

}  // namespace mnist
