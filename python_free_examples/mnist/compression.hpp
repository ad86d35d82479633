// What the gradients travel as. The library compresses inside its all-reduce; here stand what may be asked of it, as
// flags and as text, and what it says that it did. Nothing but gradients is compressed.
//
// Top-k keeps what it does not send, per tensor; a tensor is a bucket, and is named after its elements. So what is kept
// belongs to the run, like the weights, but is different on every rank: a checkpoint holds all ranks'.
#pragma once

#include <collectives/communicator.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mnist {

struct Bucket;

enum class CompressionKind : std::uint8_t { none, bf16, fp16, int8, top_k };

inline constexpr std::string_view kCompressionNames[] = {"none", "bf16", "fp16", "int8", "top_k"};  // by its kind
inline constexpr std::string_view kNonFiniteNames[] = {"propagate", "skip", "abort"};  // by collectives::NonFinite

/// "0.01" or "1%": above 0 and up to 1. Throws std::invalid_argument in one line.
double parse_density(std::string_view text);

/// What a run asks for. `top_k` counts only for that kind.
struct Compression {
  CompressionKind kind = CompressionKind::none;
  collectives::TopKOptions top_k = {};
  bool by_layer = false;  ///< top_k chooses from each layer instead of each bucket
  bool force = false;     ///< also where the library knows that it loses time

  /// Takes over the kind, and for top_k the density: "bf16", "top_k", "top_k:0.001", "top_k:0.1%". Throws
  /// std::invalid_argument in one line.
  void choose(std::string_view text);
  /// What choose() takes.
  std::string choice() const;
  /// All of it in a line, as far as it is not the default; equal texts give equal bits.
  std::string text() const;
};

/// What the library did in some steps. Numbers are means over the ranks, and over the steps where they are of a step.
struct CompressionReport {
  double gradient_bytes = 0;    ///< of a step's gradient, as f32
  double raw_bytes = 0;         ///< of a step, in messages that a rank would have sent: none where memory is shared
  double sent_bytes = 0;        ///< of a step, in messages that it sent
  double compressed_share = 0;  ///< of the all-reduces; the others sent everything
  std::string reason;           ///< why everything was sent, where it was; empty where it never was
  bool top_k = false;           ///< or what follows has no meaning
  double chosen = 0;            ///< of a step: elements of all tensors that a rank chose
  double united = 0;            ///< of a step: elements to which any rank contributed
  double coding_ms = 0;         ///< of a step: choosing, writing, adding
  double residual_norm = 0;     ///< after the last step: of what all ranks keep
  double relative_error = 0;    ///< in the last step, of tensors that something is kept of: that norm over the norm of
                                ///< all that there was to give
};

/// The compression of one run's buckets.
class Compressor {
 public:
  /// What TopK::save() makes, of every rank.
  using States = std::vector<std::vector<std::byte>>;

  Compressor(collectives::Communicator& comm, const Compression& compression, std::span<const Bucket> buckets);

  /// For the all-reduce of bucket `bucket`.
  collectives::Options options(std::size_t bucket);
  /// What will be done with the largest bucket, and why, in the library's words; empty without compression. Every rank
  /// calls it.
  std::string plan();

  /// A step's all-reduces are done.
  void count_step();
  /// Of the steps since the last call; nothing without compression or steps. Every rank calls it.
  std::optional<CompressionReport> take_report();

  /// What every rank keeps, on rank 0, and nothing on the others; none where nothing is kept. Every rank calls it.
  States save() const;
  /// Goes on from what some number of ranks had saved. Throws std::invalid_argument in one line, and then nothing is
  /// changed.
  void load(const States& states);

 private:
  struct Tensor {
    std::string name;
    std::size_t count = 0;
    bool coded = false;  // of codecs; so are the others
    double raw_bytes = 0, sent_bytes = 0;
    std::string reason = {};
  };
  collectives::Options options_of(const Tensor& tensor);

  collectives::Communicator& comm_;
  const Compression compression_;
  std::vector<Tensor> tensors_;  // bucket by bucket
  std::optional<collectives::TopK> top_k_;
  std::size_t steps_ = 0;
  CompressionReport sums_;  // of these steps and this rank
};

}  // namespace mnist
