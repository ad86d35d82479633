// Implementation of the reader of IDX files, in which the MNIST digits are published. Each file is small, so it is read
// as a whole. A file may be compressed by gzip. The reader calls zlib's inflate and not gzread, because gzread ignores
// garbage at the end of a file and accepts files that are not compressed.
#include "idx.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/safe_file.hpp"

namespace mnist {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Maximum size in bytes of an unpacked file: many times the size of MNIST, and far less than the memory of a machine.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

[[noreturn]] void refuse_file(const std::filesystem::path& path, std::string_view why) {
  throw FileError(fmt::format("{}: {}", path.string(), why));
}

Bytes read_file(const std::filesystem::path& path) {
  const auto bytes = collectives::read_file(path.string(), kMostBytes);
  if (!bytes) refuse_file(path, fmt::format("cannot be read: {}", collectives::file_error_text(errno)));
  return Bytes(bytes->begin(), bytes->end());
}

Bytes gunzip(const std::filesystem::path& path, Bytes packed) {
  z_stream stream{};
  if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK) refuse_file(path, "zlib has no memory");
  Bytes plain, piece(1 << 20);
  stream.next_in = packed.data();
  stream.avail_in = static_cast<uInt>(packed.size());
  int status = Z_OK;
  while (status == Z_OK && plain.size() < kMostBytes) {
    stream.next_out = piece.data();
    stream.avail_out = static_cast<uInt>(piece.size());
    status = inflate(&stream, Z_NO_FLUSH);
    plain.insert(plain.end(), piece.data(), stream.next_out);
  }
  const std::string detail = stream.msg ? stream.msg : "";
  const std::size_t left = stream.avail_in;
  inflateEnd(&stream);
  if (status == Z_BUF_ERROR) refuse_file(path, "truncated gzip data");
  if (status == Z_OK) refuse_file(path, "unpacks to more than 1 GiB");
  if (status != Z_STREAM_END) refuse_file(path, fmt::format("damaged gzip data ({})", detail));
  if (left > 0) refuse_file(path, fmt::format("{} bytes after the end of the gzip data", left));
  return plain;
}

std::uint32_t big_endian(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 | at[3];
}

/// Returns the elements of an IDX file. Requires that the file has the magic number `magic`, and the dimensions `inner`
/// after the first one.
Bytes read_elements(const std::filesystem::path& path, std::uint32_t magic,
                    std::initializer_list<std::uint32_t> inner) {
  Bytes bytes = read_file(path);
  if (path.extension() == ".gz") bytes = gunzip(path, std::move(bytes));

  const std::size_t header = 4 * (2 + inner.size());  // magic, number of items, inner dimensions
  if (bytes.size() < 4) refuse_file(path, fmt::format("truncated: {} bytes", bytes.size()));
  if (big_endian(bytes.data()) != magic)
    refuse_file(path, fmt::format("magic number {:#010x}, {:#010x} expected", big_endian(bytes.data()), magic));
  if (bytes.size() < header) refuse_file(path, fmt::format("truncated: {} bytes", bytes.size()));

  std::size_t expected = big_endian(bytes.data() + 4);
  const std::uint8_t* dimension = bytes.data() + 8;
  for (const std::uint32_t length : inner) {
    if (big_endian(dimension) != length)
      refuse_file(path, fmt::format("a side of {} pixels, {} expected", big_endian(dimension), length));
    expected *= length;
    dimension += 4;
  }
  const std::size_t present = bytes.size() - header;
  if (present < expected) refuse_file(path, fmt::format("truncated: {} bytes of data, {} expected", present, expected));
  if (present > expected) refuse_file(path, fmt::format("{} bytes after the end of the data", present - expected));
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
  return bytes;
}

std::filesystem::path plain_or_packed(const std::filesystem::path& folder, std::string_view name) {
  for (const std::string_view suffix : {"", ".gz"}) {
    const std::filesystem::path path = folder / fmt::format("{}{}", name, suffix);
    if (std::filesystem::exists(path)) return path;
  }
  refuse_file(folder / name, "not found, neither plain nor with .gz");
}

}  // namespace

Dataset read_idx(const std::filesystem::path& images, const std::filesystem::path& labels) {
  Dataset data;
  data.images = read_elements(images, 0x00000803, {kSide, kSide});
  data.labels = read_elements(labels, 0x00000801, {});
  const auto wrong = std::find_if(data.labels.begin(), data.labels.end(), [](auto label) { return label >= kClasses; });
  if (wrong != data.labels.end())
    refuse_file(labels, fmt::format("label {} at position {}, 0 to 9 expected", *wrong, wrong - data.labels.begin()));
  if (data.images.size() != data.labels.size() * kPixels)
    refuse_file(labels, fmt::format("{} labels for the {} images of {}", data.labels.size(),
                                    data.images.size() / kPixels, images.filename().string()));
  if (data.labels.empty()) refuse_file(images, "no images");
  return data;
}

Data load_idx(const std::filesystem::path& folder) {
  Data data;
  data.train =
      read_idx(plain_or_packed(folder, "train-images-idx3-ubyte"), plain_or_packed(folder, "train-labels-idx1-ubyte"));
  data.test =
      read_idx(plain_or_packed(folder, "t10k-images-idx3-ubyte"), plain_or_packed(folder, "t10k-labels-idx1-ubyte"));
  data.source = folder.string();
  return data;
}

}  // namespace mnist
