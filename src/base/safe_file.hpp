// Functions that safely open files whose paths come from a user: outputs of programs, traces, checkpoints and caches.
// Only this file opens files at such paths.
//
// Folders may be shared with other users. Other users can put links, FIFOs and devices at a path before a program opens
// it. The functions therefore open a file for writing with O_NOFOLLOW and O_NONBLOCK. An existing file must be regular,
// belong to this user and have no second name (hard link). New files have mode 0600. Programs may also write to
// character devices such as /dev/null, and to their own descriptors: /dev/stdout, /dev/stderr, /dev/fd/N.
//
// Some files must never be incomplete for a reader. The class FileReplacement writes the new contents to a file without
// a name, in the folder of the target. At the end, this file replaces the target.
//
// Functions that throw no exception set errno. file_error_text() returns the meaning of errno, also for files that this
// library refuses but the system would open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"

namespace collectives {

/// Returns a text with the meaning of the errno that a function of this file has set.
std::string file_error_text(int error);

/// Opens a file to append to it, and creates it if there is none. Returns no descriptor and sets errno if the system or
/// this library refuses. Safe in a signal handler.
Descriptor open_to_append(const char* path) noexcept;
/// Opens a file like open_to_append(), and empties it. A descriptor of this process and a device stay as they are.
Descriptor open_to_overwrite(const char* path) noexcept;

/// Owner that a file to read must have. The user chooses paths of inputs, so inputs may be links and may belong to
/// anyone. Files that the library finds itself must be this user's or root's, and no links.
enum class FileOwner : std::uint8_t { anyone, self };

/// Returns the bytes of a regular file or of a descriptor of this process such as /dev/stdin. Returns nothing and sets
/// errno if the file cannot be read, is refused, or has more than `most` bytes.
std::optional<std::string> read_file(const std::string& path, std::size_t most, FileOwner owner = FileOwner::anyone);

/// New content of a file, which replaces the old one as a whole. A reader sees the old file or the new one.
class FileReplacement {
 public:
  /// Makes an empty file beside `path`, without a name if the file system permits it.
  explicit FileReplacement(std::string path);
  /// Removes the new file, unless commit() has succeeded.
  ~FileReplacement();
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  /// Returns false if the file could not be made; errno holds the reason until another call changes it.
  bool is_open() const noexcept { return static_cast<bool>(file_); }
  int descriptor() const noexcept { return file_.fd(); }
  /// Appends bytes. Returns false and sets errno if the system refuses.
  bool write(std::string_view bytes) noexcept;
  /// Puts the new file in the place of `path`. With `to_disk`, also flushes both to the disk, so that they survive a
  /// crash of the machine. Returns false and sets errno if the system refuses.
  bool commit(bool to_disk = true);

 private:
  std::string path_, temporary_;  // temporary_: name of the new file; empty while it has none
  Descriptor file_;
};

/// Stream that writes to a file. Like std::ofstream, it has failed if the system refuses a write.
class OutputFile : public std::ostream {
 public:
  /// Opens the file by open_to_overwrite(). If is_open() then returns false, errno holds the reason.
  explicit OutputFile(const std::string& path);
  ~OutputFile() override;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  bool is_open() const noexcept { return buffer_.is_open(); }
  /// Writes the rest and closes the file. The stream has failed if anything was not written.
  void close();

 private:
  class Buffer : public std::streambuf {
   public:
    explicit Buffer(Descriptor file);
    bool is_open() const noexcept { return static_cast<bool>(file_); }
    bool close() noexcept;

   private:
    int_type overflow(int_type next) override;
    int sync() override;

    Descriptor file_;
    char space_[4096];
  };
  Buffer buffer_;
};

}  // namespace collectives
