// Tests of the reader of IDX files, in which the MNIST digits are published. They read valid and broken files, and
// check that every error names the file.
#include "idx.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <string>

#include "files.hpp"

namespace mnist {
namespace {

using testing::big_endian;
using testing::Folder;
using testing::image_file;
using testing::label_file;
using testing::message_of;
using ::testing::Test;
using testing::write_file;

std::string gzip(std::string plain) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(plain.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

class Idx : public Test {
 protected:
  Idx() {
    write_file(images_, image_file(3));
    write_file(labels_, label_file({7, 0, 9}));
  }
  /// Returns the error of read_idx() about the two files. Checks that the error is one line.
  std::string refusal(const std::filesystem::path& images, const std::filesystem::path& labels) {
    const std::string text = message_of<FileError>([&] { read_idx(images, labels); });
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text;
  }
  std::string refusal_of_images(const std::string& bytes, const std::string& name = "images") {
    const std::filesystem::path path = folder_ / name;
    write_file(path, bytes);
    const std::string text = refusal(path, labels_);
    EXPECT_TRUE(text.starts_with(path.string() + ": ")) << text;
    return text.substr(std::min(text.size(), path.string().size() + 2));
  }
  std::string refusal_of_labels(const std::string& bytes) {
    write_file(labels_, bytes);
    const std::string text = refusal(images_, labels_);
    EXPECT_TRUE(text.starts_with(labels_.string() + ": ")) << text;
    return text.substr(std::min(text.size(), labels_.string().size() + 2));
  }

  Folder folder_;
  std::filesystem::path images_ = folder_ / "images", labels_ = folder_ / "labels";
};

TEST_F(Idx, PlainFilesAreRead) {
  const Dataset data = read_idx(images_, labels_);
  ASSERT_EQ(data.size(), 3u);
  EXPECT_EQ(data.labels, (std::vector<std::uint8_t>{7, 0, 9}));
  EXPECT_EQ(data.images.size(), 3 * kPixels);
  EXPECT_EQ(data.images[250], 250);
  EXPECT_EQ(data.images[251], 0);
}

TEST_F(Idx, GzipFilesGiveTheSame) {
  write_file(folder_ / "images.gz", gzip(image_file(3)));
  const Dataset plain = read_idx(images_, labels_), packed = read_idx(folder_ / "images.gz", labels_);
  EXPECT_EQ(plain.images, packed.images);
}

TEST_F(Idx, AFolderMayMixPlainAndGzip) {
  write_file(folder_ / "train-images-idx3-ubyte", image_file(2));
  write_file(folder_ / "train-labels-idx1-ubyte.gz", gzip(label_file({1, 2})));
  write_file(folder_ / "t10k-images-idx3-ubyte.gz", gzip(image_file(1)));
  write_file(folder_ / "t10k-labels-idx1-ubyte", label_file({3}));
  const Data data = load_idx(folder_.path());
  EXPECT_EQ(data.train.size(), 2u);
  EXPECT_EQ(data.test.size(), 1u);
}

TEST_F(Idx, AMissingFileIsNamed) {
  const std::string text = message_of<FileError>([&] { load_idx(folder_.path()); });
  EXPECT_NE(text.find("train-"), std::string::npos) << text;
  EXPECT_NE(text.find("not found"), std::string::npos) << text;
}

TEST_F(Idx, EveryTruncationIsRefused) {
  const std::string whole = image_file(3);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{3}, std::size_t{4}, std::size_t{15}, std::size_t{16},
                                  std::size_t{800}, whole.size() - 1})
    EXPECT_TRUE(refusal_of_images(whole.substr(0, bytes)).starts_with("truncated")) << bytes;
}

TEST_F(Idx, BytesAfterTheEndAreRefused) {
  EXPECT_EQ(refusal_of_images(image_file(3) + "xx"), "2 bytes after the end of the data");
}

TEST_F(Idx, LabelsAreNotImages) {
  EXPECT_EQ(refusal_of_images(label_file({1, 2, 3})), "magic number 0x00000801, 0x00000803 expected");
}

TEST_F(Idx, OtherSizesAreRefused) {
  EXPECT_EQ(refusal_of_images(big_endian(0x803) + big_endian(1) + big_endian(32) + big_endian(32)),
            "a side of 32 pixels, 28 expected");
}

TEST_F(Idx, ACountThatDoesNotFitIsTruncation) {
  EXPECT_TRUE(refusal_of_images(big_endian(0x803) + big_endian(0xffffffff) + big_endian(28) + big_endian(28))
                  .starts_with("truncated"));
}

TEST_F(Idx, ALabelAboveNineIsRefused) {
  EXPECT_EQ(refusal_of_labels(label_file({1, 10, 3})), "label 10 at position 1, 0 to 9 expected");
}

TEST_F(Idx, UnequalNumbersAreRefused) {
  EXPECT_EQ(refusal_of_labels(label_file({1, 2})), "2 labels for the 3 images of images");
}

TEST_F(Idx, NoImagesAtAllAreRefused) {
  write_file(labels_, label_file({}));
  EXPECT_EQ(refusal_of_images(image_file(0)), "no images");
}

TEST_F(Idx, DamagedGzipIsRefused) {
  std::string packed = gzip(image_file(3));
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x55);
  EXPECT_NE(refusal_of_images(packed, "images.gz").find("gzip"), std::string::npos);
}

TEST_F(Idx, AWrongGzipChecksumIsRefused) {
  std::string packed = gzip(image_file(3));
  packed[packed.size() - 6] = static_cast<char>(packed[packed.size() - 6] ^ 1);
  EXPECT_NE(refusal_of_images(packed, "images.gz").find("damaged gzip data"), std::string::npos);
}

TEST_F(Idx, TruncatedGzipIsRefused) {
  const std::string packed = gzip(image_file(3));
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, packed.size() / 2, packed.size() - 1})
    EXPECT_EQ(refusal_of_images(packed.substr(0, bytes), "images.gz"), "truncated gzip data") << bytes;
}

TEST_F(Idx, BytesAfterGzipAreRefused) {
  EXPECT_EQ(refusal_of_images(gzip(image_file(3)) + "tail", "images.gz"), "4 bytes after the end of the gzip data");
}

TEST_F(Idx, APlainFileCalledGzipIsRefused) {
  EXPECT_NE(refusal_of_images(image_file(3), "images.gz").find("damaged gzip data"), std::string::npos);
}

TEST(Dataset, PickedPixelsGoFromZeroToOne) {
  Dataset data;
  data.images.resize(2 * kPixels);
  data.labels = {4, 5};
  data.images[kPixels] = 255;
  std::vector<float> pixels(2 * kPixels, -1.0f);
  std::vector<std::uint8_t> labels(2);
  const std::vector<std::uint32_t> indices = {1, 0};
  data.pick(indices, pixels.data(), labels.data());
  EXPECT_EQ(labels, (std::vector<std::uint8_t>{5, 4}));
  EXPECT_EQ(pixels[0], 1.0f);
  EXPECT_EQ(pixels[1], 0.0f);
  EXPECT_EQ(pixels[kPixels], 0.0f);
}

}  // namespace
}  // namespace mnist
