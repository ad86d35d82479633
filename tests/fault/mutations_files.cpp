// Targets of mutations: files of the user, and pages of other processes.
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/json.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/communicator.hpp"
#include "fault/mutations.hpp"
#include "monitoring/flight_recorder.hpp"
#include "monitoring/process_page.hpp"
#include "tuning/measured_tuning.hpp"
#include "tuning/tuning_cache.hpp"

namespace collectives::testing {
namespace {

/// Folder that is removed at the end of the process.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "mutations.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for files");
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

const ScratchFolder& scratch() {
  static const ScratchFolder folder;
  return folder;
}

Situation situation() { return situation_of(4, 2, true, 250.0); }

std::string cache_seed() {
  const TuningCache cache(scratch().file("seed.json"));
  cache.keep(situation(), {{"inline_bytes", 512}, {"single_copy_bytes", "never"}}, {{"barrier", {1, 2, 3}}});
  std::ifstream file(cache.path());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Reads a cache that lies in memory, and is opened by the path of its descriptor.
MutationOutcome read_cache(std::string_view bytes) {
  static const Descriptor file(::memfd_create("tuning.json", MFD_CLOEXEC));
  static const TuningCache cache(fmt::format("/proc/self/fd/{}", file.fd()));
  if (::ftruncate(file.fd(), 0) != 0 ||
      ::pwrite(file.fd(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("the cache cannot be written");
  std::string why;
  ::lseek(file.fd(), 0, SEEK_SET);  // the descriptors of a file have one position
  const auto entries = cache.entries(&why);
  if (!why.empty()) return MutationOutcome::refused(why);
  ::lseek(file.fd(), 0, SEEK_SET);
  const auto found = cache.find(situation());
  return found ? MutationOutcome::accepted(fmt::format("{}", entries.empty())) : MutationOutcome::dropped();
}

/// Bytes of this process's page with one communicator: the header and the first block.
std::string page_seed() {
  static const std::unique_ptr<Communicator> comm = [] {
    auto one = std::make_unique<Communicator>(*bootstrap_threads(1)[0]);
    for (int call = 0; call < 70; ++call) {
      float value = 1;
      one->all_reduce(Buffer(std::span(&value, 1)), ReduceOp::sum, Options{.name = "gradients"});
    }
    return one;
  }();
  const ProcessPage* const page = page_of_this_process();
  return {reinterpret_cast<const char*>(page), offsetof(ProcessPage, blocks) + 2 * sizeof(CommunicatorBlock)};
}

/// Reads a page that begins with `bytes` and has zeros behind them, as `collectives_info watch` does.
MutationOutcome read_mutated_page(std::string_view bytes) {
  static const Descriptor file(::memfd_create("page", MFD_CLOEXEC));
  static std::size_t used = 0;
  static const auto page = std::make_unique<ProcessPage>();
  std::string content(bytes.substr(0, sizeof(ProcessPage)));
  const std::size_t length = content.size();
  content.resize(std::max(length, used));
  // A page that is cut to nothing has another size.
  if (::ftruncate(file.fd(), length == 0 ? 0 : sizeof(ProcessPage)) != 0 ||
      ::pwrite(file.fd(), content.data(), content.size(), 0) != static_cast<ssize_t>(content.size()))
    throw std::runtime_error("the page cannot be written");
  used = length;
  if (const PageState state = read_page(file.fd(), *page); state != PageState::page)
    return MutationOutcome::refused(fmt::format("state {}", state == PageState::no_page ? "none" : "other"));
  const TickScale scale(page->begun);
  std::size_t printed = 0;
  char space[256];
  for (const CommunicatorBlock& block : page->blocks) {
    if (block.used.load() == 0) continue;
    for (const OperationEntry& entry : block.operations)
      for (const char c : operation_text(entry, scale, space)) {
        if (c >= 0 && (c < ' ' || c == 127)) throw std::runtime_error("a control character is printed");
        ++printed;
      }
    printed += std::string_view(block.transport).size() + std::string_view(block.backend).size();
  }
  return MutationOutcome::accepted(printed > 0 ? "text" : "no text");
}

}  // namespace

std::vector<MutationTarget> file_targets() {
  return {{"tuning_cache", {cache_seed(), R"({"entries":[{"of":{},"tuning":{},"measured":""}]})"}, read_cache},
          {"process_page", {page_seed()}, read_mutated_page, 1}};
}

}  // namespace collectives::testing
