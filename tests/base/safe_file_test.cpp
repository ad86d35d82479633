// Tests of the functions that open files: planted links, FIFOs and foreign files are refused, devices are not.
#include "base/safe_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

namespace collectives {
namespace {

namespace fs = std::filesystem;

class SafeFile : public ::testing::Test {
 protected:
  SafeFile() {
    std::string name = (fs::temp_directory_path() / "safe_file_test.XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    std::ofstream(path("victim")) << "secret";
  }
  ~SafeFile() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string content(const std::string& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  /// Expects that neither function opens `file`, for the reason `why`.
  static void expect_refused(const std::string& file, const std::string& why) {
    EXPECT_FALSE(open_to_append(file.c_str()));
    EXPECT_NE(file_error_text(errno).find(why), std::string::npos) << file_error_text(errno);
    EXPECT_FALSE(open_to_overwrite(file.c_str()));
    EXPECT_NE(file_error_text(errno).find(why), std::string::npos) << file_error_text(errno);
    EXPECT_FALSE(OutputFile(file).is_open());
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

 private:
  fs::path folder_;
};

TEST_F(SafeFile, WritesThroughNoPlantedLink) {
  fs::create_symlink(path("victim"), path("link"));
  expect_refused(path("link"), "symbolic link");
  fs::create_symlink(path("nothing yet"), path("dangling"));
  expect_refused(path("dangling"), "symbolic link");
  EXPECT_FALSE(fs::exists(path("nothing yet")));
  FileReplacement replacement(path("link"));
  EXPECT_TRUE(replacement.write("new") && replacement.commit());
  EXPECT_FALSE(fs::is_symlink(path("link"))) << "the link itself is replaced";
  EXPECT_EQ(content(path("victim")), "secret");
}

TEST_F(SafeFile, RefusesAPlantedHardLink) {
  fs::create_hard_link(path("victim"), path("other name"));
  expect_refused(path("other name"), "hard links");
  EXPECT_EQ(content(path("victim")), "secret");
}

TEST_F(SafeFile, WaitsForNoPlantedFifo) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  expect_refused(path("fifo"), "not a regular file");
  EXPECT_FALSE(read_file(path("fifo"), 100));
  EXPECT_FALSE(read_file(path("fifo"), 100, FileOwner::self));
  const int reader = ::open(path("fifo").c_str(), O_RDONLY | O_NONBLOCK);  // opening to write would now succeed
  expect_refused(path("fifo"), "not a regular file");
  ::close(reader);
}

TEST_F(SafeFile, RefusesTheFileOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chown(path("victim").c_str(), 12345, 12345), 0);
  expect_refused(path("victim"), "another user");
  EXPECT_FALSE(read_file(path("victim"), 100, FileOwner::self));
  EXPECT_EQ(read_file(path("victim"), 100), "secret") << "inputs that the user names may be anyone's";
}

TEST_F(SafeFile, ReadsOnlyItsOwnFilesThroughNoLink) {
  fs::create_symlink(path("victim"), path("link"));
  EXPECT_EQ(read_file(path("link"), 100), "secret");
  EXPECT_FALSE(read_file(path("link"), 100, FileOwner::self));
  EXPECT_EQ(errno, ELOOP);
  EXPECT_FALSE(read_file(path("victim"), 5));
  EXPECT_EQ(errno, EFBIG);
  EXPECT_FALSE(read_file(path(""), 100)) << "a folder";
  EXPECT_FALSE(read_file("/dev/zero", 100));
}

TEST_F(SafeFile, MakesFilesForItsUserAlone) {
  ::umask(0);
  { const Descriptor file = open_to_append(path("fresh").c_str()); }
  FileReplacement replacement(path("replaced"));
  ASSERT_TRUE(replacement.write("x") && replacement.commit());
  for (const char* name : {"fresh", "replaced"}) {
    struct stat status {};
    ASSERT_EQ(::stat(path(name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777u, 0600u) << name;
  }
}

TEST_F(SafeFile, AppendsAndOverwrites) {
  EXPECT_EQ(write_all(open_to_append(path("victim").c_str()).fd(), " more"), 5u);
  EXPECT_EQ(content(path("victim")), "secret more");
  EXPECT_EQ(write_all(open_to_overwrite(path("victim").c_str()).fd(), "new"), 3u);
  EXPECT_EQ(content(path("victim")), "new");
}

TEST_F(SafeFile, WritesToDevicesAndToDescriptorsOfTheProcess) {
  EXPECT_TRUE(OutputFile("/dev/null").is_open());
  OutputFile full("/dev/full");
  ASSERT_TRUE(full.is_open());
  full << "lost";
  full.close();
  EXPECT_TRUE(full.fail());
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  for (const char* folder : {"/dev/fd/", "/proc/self/fd/"}) {
    OutputFile out(folder + std::to_string(ends[1]));
    out << "to a pipe" << std::flush;
    char text[16] = {};
    EXPECT_EQ(::read(ends[0], text, sizeof text), 9);
    EXPECT_STREQ(text, "to a pipe");
  }
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_FALSE(OutputFile("/dev/fd/99999").is_open());
}

TEST_F(SafeFile, AReplacementThatEndsEarlyLeavesTheOldFileAlone) {
  {
    FileReplacement replacement(path("victim"));
    EXPECT_TRUE(replacement.write("half of"));
    EXPECT_EQ(content(path("victim")), "secret");
  }
  EXPECT_EQ(content(path("victim")), "secret");
  EXPECT_EQ(files(), 1u);
  fs::create_directory(path("folder"));
  FileReplacement folder(path("folder"));
  EXPECT_FALSE(folder.write("x") && folder.commit());
  EXPECT_FALSE(FileReplacement(path("none/file")).is_open());
}

}  // namespace
}  // namespace collectives
