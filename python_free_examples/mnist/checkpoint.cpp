// Implementation of checkpoints, files with which training can be continued. This file writes, reads and checks them.
// It checks, in this order: magic number, version, length, checksum (CRC), description and contents.
#include "checkpoint.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/json.hpp"
#include "base/safe_file.hpp"
#include "dataset.hpp"

namespace mnist {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "MNISTCKP";
constexpr std::uint32_t kVersion = 1, kVersionWithStates = 2;

struct Lengths {
  std::uint32_t version = kVersion;
  std::uint32_t description = 0;  // bytes of the description
  std::uint64_t numbers = 0;      // bytes of the numbers and states
};
constexpr std::size_t kPrefixBytes = kMagic.size() + sizeof(Lengths);  // bytes before the description: 8 + 4 + 4 + 8
constexpr std::size_t kCrcBytes = sizeof(std::uint32_t);

std::uint32_t crc_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

json shapes(const Model& model) {
  json list = json::array();
  for (const Tensor& tensor : model.tensors()) list.push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  return list;
}

void append(std::string& bytes, std::span<const float> numbers) {
  bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}

/// Returns the f32 numbers in `bytes`. Copies them, because they may be unaligned in the file.
std::vector<float> numbers(std::string_view bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw FileError(fmt::format("{}: {}", path.string(), collectives::file_error_text(errno)));
}

/// Throws FileError if `path` exists and is no regular file.
void require_regular(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular)
    throw FileError(fmt::format("{}: not a regular file", path.string()));
}

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view why) {
  throw FileError(fmt::format("{}: {}", path.string(), why));
}

/// Checks magic number, version, length and CRC of a checkpoint. Returns the lengths that it contains.
Lengths check_envelope(std::string_view bytes, const std::filesystem::path& path) {
  if (!bytes.starts_with(kMagic.substr(0, bytes.size())) || bytes.empty())
    refuse(path, "not a checkpoint of mnist_trainer");
  if (bytes.size() < kPrefixBytes) refuse(path, fmt::format("truncated: {} bytes", bytes.size()));
  Lengths lengths;
  std::memcpy(&lengths, bytes.data() + kMagic.size(), sizeof lengths);
  if (lengths.version != kVersion && lengths.version != kVersionWithStates)
    refuse(path, fmt::format("format version {}, this program reads {} and {}", lengths.version, kVersion,
                             kVersionWithStates));
  const std::size_t rest = bytes.size() - kPrefixBytes, beside = lengths.description + kCrcBytes;
  if (rest < beside || rest - beside < lengths.numbers)
    refuse(path,
           fmt::format("truncated: {} bytes after the prefix, which announces {} of description and {} of numbers",
                       rest, lengths.description, lengths.numbers));
  if (rest - beside > lengths.numbers)
    refuse(path, fmt::format("{} bytes after the end", rest - beside - lengths.numbers));
  std::uint32_t crc = 0;
  std::memcpy(&crc, bytes.data() + bytes.size() - kCrcBytes, kCrcBytes);
  if (crc != crc_of(bytes.substr(0, bytes.size() - kCrcBytes))) refuse(path, "damaged: its CRC32 does not match");
  return lengths;
}

/// JSON part of a checkpoint, which describes the run.
struct Description {
  std::string model, optimizer;
  json tensors;
  std::uint64_t updates = 0;
  RunIdentity run;
  std::vector<std::size_t> state_bytes;
  Position position;
};

Description parse_description(std::string_view text, const std::filesystem::path& path) {
  const json fields = collectives::parse_json(text);
  Description description;
  try {
    description.model = fields.at("model");
    description.tensors = fields.at("tensors");
    description.optimizer = fields.at("optimizer");
    description.updates = fields.at("updates");
    description.run = {fields.at("seed"),
                       fields.at("batch"),
                       fields.at("train_images"),
                       fields.at("data_checksum"),
                       fields.value("accumulate", std::size_t{1}),
                       fields.value("compression", "none")};
    description.state_bytes = fields.value("state_bytes", description.state_bytes);
    description.position = {
        fields.at("epoch"),
        fields.at("step"),
        fields.at("total_steps"),
        {fields.at("loss").is_null() ? std::nan("") : fields.at("loss").get<double>(), fields.at("correct")},
        fields.at("images")};
  } catch (const json::exception&) {
    refuse(path, "damaged: its description does not read");
  }
  return description;
}

void require_same_run(const Description& description, const RunIdentity& run, const Model& model,
                      const Optimizer& optimizer, const std::filesystem::path& path) {
  const RunIdentity& saved = description.run;
  const auto same = [&](std::string_view what, const auto& theirs, const auto& ours) {
    if (theirs != ours) refuse(path, fmt::format("of another run: {} {}, this run has {}", what, theirs, ours));
  };
  same("model", description.model, model.name());
  if (description.tensors != shapes(model)) refuse(path, "of another model: its tensors have other names or shapes");
  same("optimizer", std::string_view(description.optimizer), optimizer.name());
  same("seed", saved.seed, run.seed);
  same("batch", saved.batch, run.batch);
  same("batches of a step", saved.accumulate, run.accumulate);
  same("training images", saved.train_images, run.train_images);
  same("data checksum", saved.data_checksum, run.data_checksum);
  // The compression must be equal, with one exception: a run with residuals may continue a checkpoint without them. A
  // residual holds values that the compression has not sent yet.
  if (!(run.keeps_residuals && description.state_bytes.empty()))
    same("compression", saved.compression, run.compression);
}

/// Reader of the f32 numbers of a checkpoint, in order.
class Numbers {
 public:
  Numbers(std::string_view bytes, const std::filesystem::path& path) : left_(bytes), path_(path) {}

  std::string_view cut(std::size_t bytes) {
    if (bytes > left_.size()) refuse(path_, "damaged: its description does not fit its length");
    const std::string_view part = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return part;
  }
  Compressor::States cut_states(const std::vector<std::size_t>& bytes_of_states) {
    Compressor::States states;
    for (const std::size_t bytes : bytes_of_states) {
      const auto state = std::as_bytes(std::span(cut(bytes)));
      states.emplace_back(state.begin(), state.end());
    }
    return states;
  }
  void require_end() const {
    if (!left_.empty()) refuse(path_, "damaged: its description does not fit its length");
  }

 private:
  std::string_view left_;
  const std::filesystem::path& path_;
};

}  // namespace

std::string pack_checkpoint(const Model& model, const Optimizer& optimizer, const RunIdentity& run,
                            const Position& position, const Compressor::States& states) {
  std::vector<std::size_t> state_bytes;
  std::size_t all_state_bytes = 0;
  for (const auto& state : states) {
    state_bytes.push_back(state.size());
    all_state_bytes += state.size();
  }
  const std::string description = collectives::json_text(json{{"model", model.name()},
                                                              {"tensors", shapes(model)},
                                                              {"optimizer", optimizer.name()},
                                                              {"updates", optimizer.updates()},
                                                              {"seed", run.seed},
                                                              {"batch", run.batch},
                                                              {"train_images", run.train_images},
                                                              {"data_checksum", run.data_checksum},
                                                              {"accumulate", run.accumulate},
                                                              {"compression", run.compression},
                                                              {"state_bytes", state_bytes},
                                                              {"epoch", position.epoch},
                                                              {"step", position.step},
                                                              {"total_steps", position.total_steps},
                                                              {"loss", position.score.loss},
                                                              {"correct", position.score.correct},
                                                              {"images", position.images}});
  const Lengths lengths{states.empty() ? kVersion : kVersionWithStates, static_cast<std::uint32_t>(description.size()),
                        model.parameters().size_bytes() + optimizer.state().size_bytes() + all_state_bytes};
  std::string bytes(kMagic);
  bytes.append(reinterpret_cast<const char*>(&lengths), sizeof lengths);
  bytes += description;
  append(bytes, model.device().on_host(model.parameters()));
  append(bytes, optimizer.device().on_host(optimizer.state()));
  for (const auto& state : states) bytes.append(reinterpret_cast<const char*>(state.data()), state.size());
  const std::uint32_t crc = crc_of(bytes);
  bytes.append(reinterpret_cast<const char*>(&crc), kCrcBytes);
  return bytes;
}

void require_writable(const std::filesystem::path& path) {
  require_regular(path);
  if (!collectives::FileReplacement(path.string()).is_open()) fail(path);
}

void write_atomically(const std::filesystem::path& path, std::string_view bytes) {
  collectives::FileReplacement file(path.string());
  if (!file.write(bytes) || !file.commit()) fail(path);
}

std::string read_whole(const std::filesystem::path& path) {
  require_regular(path);  // a folder has no bytes, and /dev/zero has no end
  auto bytes = collectives::read_file(path.string(), std::numeric_limits<std::size_t>::max());
  if (!bytes) fail(path);
  return std::move(*bytes);
}

Position unpack_checkpoint(std::string_view bytes, const std::filesystem::path& path, const RunIdentity& run,
                           Model& model, Optimizer& optimizer,
                           const std::function<void(const Compressor::States&)>& take) {
  const Lengths lengths = check_envelope(bytes, path);
  const Description description = parse_description(bytes.substr(kPrefixBytes, lengths.description), path);
  require_same_run(description, run, model, optimizer, path);

  Numbers numbers_left(bytes.substr(kPrefixBytes + lengths.description, lengths.numbers), path);
  const std::string_view parameters = numbers_left.cut(model.parameters().size_bytes());
  const std::string_view moments = numbers_left.cut(optimizer.state().size_bytes());
  const Compressor::States states = numbers_left.cut_states(description.state_bytes);
  numbers_left.require_end();
  if (take && !states.empty()) try {
      take(states);
    } catch (const std::invalid_argument& error) {
      refuse(path, fmt::format("the state of its compressor: {}", error.what()));
    }

  model.device().write(numbers(parameters), model.parameters());
  optimizer.device().write(numbers(moments), optimizer.state());
  optimizer.updates() = description.updates;
  return description.position;
}

}  // namespace mnist
