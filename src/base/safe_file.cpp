// Implementation of safe_file.hpp, which opens files at paths that a user has given. Other users may have write access
// to the folder of such a path. They may have put a symbolic link or a FIFO at the path. The functions refuse such a
// file: they neither follow the link nor wait for the FIFO.
#include "base/safe_file.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error_text.hpp"

namespace collectives {
namespace {

// Values of errno for files that this library refuses, although the system would open them. The system itself does not
// return these values from open().
constexpr int kNotRegular = EMEDIUMTYPE, kOfOther = EOWNERDEAD, kOtherNames = EMLINK;

/// Returns the descriptor that a path such as "/dev/stdout" or "/dev/fd/5" names. Returns -1 for any other path.
int own_descriptor(std::string_view path) noexcept {
  if (path == "/dev/stdin") return STDIN_FILENO;
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    const std::string_view digits = path.substr(folder.size());
    if (digits.empty() || digits.size() > 6) return -1;
    int number = 0;
    for (const char digit : digits) {
      if (digit < '0' || digit > '9') return -1;
      number = 10 * number + (digit - '0');
    }
    return number;
  }
  return -1;
}

Descriptor refused(int error) noexcept {
  errno = error;
  return Descriptor();
}

/// Clears the flag O_NONBLOCK of a descriptor, so that writes to it block, and returns the descriptor.
Descriptor blocking(Descriptor file) noexcept {
  const int flags = ::fcntl(file.fd(), F_GETFL);
  if (flags >= 0) ::fcntl(file.fd(), F_SETFL, flags & ~O_NONBLOCK);
  return file;
}

/// Opens an existing file. Later writes append to it.
Descriptor open_existing(const char* path) noexcept {
  Descriptor file(::open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) return refused(errno == ENXIO ? kNotRegular : errno);  // ENXIO: a FIFO without a reader, or a socket
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) return Descriptor();
  if (S_ISCHR(status.st_mode)) return blocking(std::move(file));
  if (!S_ISREG(status.st_mode)) return refused(kNotRegular);
  if (status.st_uid != ::geteuid()) return refused(kOfOther);
  if (status.st_nlink > 1) return refused(kOtherNames);
  return blocking(std::move(file));
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// Returns a random path in the folder of `path`, which other processes cannot guess.
std::string random_name(const std::string& path) {
  unsigned long long word = 0;
  if (::getrandom(&word, sizeof word, 0) != sizeof word) word = static_cast<unsigned long long>(::getpid());
  char text[32];
  std::snprintf(text, sizeof text, ".%016llx", word);
  return path + text;
}

}  // namespace

int moved_off_standard_streams(int fd) noexcept {
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (moved < 0) return fd;
  ::close(fd);
  int stream = 0;
  // open() returns the lowest free number, so each call fills one free standard stream
  while (stream >= 0 && stream <= 2) stream = ::open("/dev/null", O_RDWR);
  if (stream > 2) ::close(stream);
  return moved;
}

std::size_t write_all(int file, std::string_view text) noexcept {
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t bytes = ::write(file, text.data() + written, text.size() - written);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) break;
    written += static_cast<std::size_t>(bytes);
  }
  return written;
}

std::string file_error_text(int error) {
  switch (error) {
    case kNotRegular: return "not a regular file";
    case kOfOther: return "the file belongs to another user";
    case kOtherNames: return "the file has several names (hard links)";
    case ELOOP: return "it is a symbolic link, which is not followed";
    case EFBIG: return "the file is too large";
    default: return error_text(error);
  }
}

Descriptor open_to_append(const char* path) noexcept {
  if (const int own = own_descriptor(path); own >= 0) return Descriptor(::fcntl(own, F_DUPFD_CLOEXEC, 0));
  // The first call creates a new file, and fails if the file exists. The second call opens an existing file. Another
  // process may create or delete the file between the two calls. If both fail three times, this is probably an attack.
  for (int attempt = 0; attempt < 3; ++attempt) {
    Descriptor file(::open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file || errno != EEXIST) return file;
    file = open_existing(path);
    if (file || errno != ENOENT) return file;
  }
  return Descriptor();
}

Descriptor open_to_overwrite(const char* path) noexcept {
  Descriptor file = open_to_append(path);
  struct stat status {};
  if (!file || own_descriptor(path) >= 0 || ::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode)) return file;
  if (::ftruncate(file.fd(), 0) != 0) return Descriptor();
  return file;
}

std::optional<std::string> read_file(const std::string& path, std::size_t most, FileOwner owner) {
  const int own = own_descriptor(path);
  const int links = owner == FileOwner::self ? O_NOFOLLOW : 0;
  const Descriptor file(own >= 0 ? ::fcntl(own, F_DUPFD_CLOEXEC, 0)
                                 : ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | links));
  struct stat status {};
  if (!file || ::fstat(file.fd(), &status) != 0) return std::nullopt;
  const auto fail = [](int error) -> std::optional<std::string> {
    errno = error;
    return std::nullopt;
  };
  if (own < 0 && !S_ISREG(status.st_mode)) return fail(S_ISDIR(status.st_mode) ? EISDIR : kNotRegular);
  if (owner == FileOwner::self && status.st_uid != ::geteuid() && status.st_uid != 0) return fail(kOfOther);
  std::string bytes;
  for (std::size_t part = 65536;;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + part);
    const ssize_t count = ::read(file.fd(), bytes.data() + before, part);
    const int error = errno;
    bytes.resize(before + (count > 0 ? static_cast<std::size_t>(count) : 0));
    if (bytes.size() > most) return fail(EFBIG);
    if (count == 0) return bytes;
    if (count < 0 && error != EINTR) return fail(error);
  }
}

FileReplacement::FileReplacement(std::string path)
    : path_(std::move(path)), file_(::open(folder_of(path_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)) {
  if (file_ || errno == ENOENT || errno == EACCES || errno == ENOTDIR) return;
  temporary_ = random_name(path_);  // the file system does not support files without a name
  file_ = Descriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_) temporary_.clear();
}

FileReplacement::~FileReplacement() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

bool FileReplacement::write(std::string_view bytes) noexcept {
  return file_ && write_all(file_.fd(), bytes) == bytes.size();
}

bool FileReplacement::commit(bool to_disk) {
  if (!file_ || (to_disk && ::fsync(file_.fd()) != 0)) return false;
  if (temporary_.empty()) {
    const std::string unnamed = "/proc/self/fd/" + std::to_string(file_.fd());
    std::string name = random_name(path_);
    if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) return false;
    temporary_ = std::move(name);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return false;
  temporary_.clear();
  if (!to_disk) return true;
  // The new name is safe on the disk only after the folder has been flushed.
  const Descriptor folder(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder && ::fsync(folder.fd()) == 0;
}

OutputFile::OutputFile(const std::string& path) : std::ostream(nullptr), buffer_(open_to_overwrite(path.c_str())) {
  const int error = errno;
  rdbuf(&buffer_);
  if (!is_open()) setstate(std::ios::failbit);
  errno = error;
}

OutputFile::~OutputFile() { buffer_.close(); }

void OutputFile::close() {
  if (!buffer_.close()) setstate(std::ios::failbit);
}

OutputFile::Buffer::Buffer(Descriptor file) : file_(std::move(file)) { setp(space_, space_ + sizeof space_); }

bool OutputFile::Buffer::close() noexcept {
  if (!file_) return true;
  const bool written = sync() == 0;
  const bool closed = ::close(file_.release()) == 0;
  return written && closed;
}

OutputFile::Buffer::int_type OutputFile::Buffer::overflow(int_type next) {
  if (sync() != 0) return traits_type::eof();
  if (!traits_type::eq_int_type(next, traits_type::eof())) sputc(traits_type::to_char_type(next));
  return traits_type::not_eof(next);
}

int OutputFile::Buffer::sync() {
  const std::string_view waiting(pbase(), static_cast<std::size_t>(pptr() - pbase()));
  const bool written = file_ && write_all(file_.fd(), waiting) == waiting.size();
  setp(space_, space_ + sizeof space_);
  return written ? 0 : -1;
}

}  // namespace collectives
