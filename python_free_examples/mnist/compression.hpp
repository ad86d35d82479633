// Compression of the gradients, which the library does inside its all-reduce. A codec sends all elements in fewer
// bytes, and top-k sends only the largest elements. This file parses the options and reports the effect. Only gradients
// are compressed.
//
// Top-k keeps a residual for each tensor: the part of its gradients that was not sent. Here a tensor is a bucket
// (buckets.hpp), and its name states its range of elements. Later steps depend on the residuals, which differ between
// ranks. A checkpoint therefore holds the residuals of all ranks.
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

inline constexpr std::string_view kCompressionNames[] = {"none", "bf16", "fp16", "int8", "top_k"};  // indexed by
                                                                                                    // CompressionKind
inline constexpr std::string_view kNonFiniteNames[] = {"propagate", "skip", "abort"};               // indexed by
                                                                                       // collectives::NonFinite

/// Parses "0.01" or "1%", above 0 and at most 1. Throws std::invalid_argument in one line.
double parse_density(std::string_view text);

/// Compression options of a run. Field `top_k` is used only if the kind is top_k.
struct Compression {
  CompressionKind kind = CompressionKind::none;
  collectives::TopKOptions top_k = {};
  bool by_layer = false;  ///< whether top_k selects from each layer instead of each bucket
  bool force = false;     ///< whether to compress even if the library predicts a loss of time

  /// Sets the kind, and for top_k the density: "bf16", "top_k", "top_k:0.001", "top_k:0.1%". Throws
  /// std::invalid_argument in one line.
  void choose(std::string_view text);
  /// Returns the text that choose() accepts.
  std::string choice() const;
  /// Returns all options that are not the default, in one line. Equal texts give equal bits.
  std::string text() const;
};

/// Effect of the compression in the steps of a report. Numbers are means over the ranks. Those marked "per step" are
/// means over the steps, too.
struct CompressionReport {
  double gradient_bytes = 0;  ///< per step: size of the gradient as f32
  double raw_bytes = 0;       ///< per step: bytes of messages without compression; none between ranks that share memory
  double sent_bytes = 0;      ///< per step: bytes of messages sent
  double compressed_share = 0;  ///< fraction of the all-reduces that were compressed
  std::string reason;           ///< reason why a tensor was sent whole; empty if none was
  bool top_k = false;           ///< whether the fields below are set
  double chosen = 0;            ///< per step: elements of all tensors that a rank selected
  double union_size = 0;        ///< per step: elements that at least one rank sent
  double coding_ms = 0;         ///< per step: time for selecting, writing and adding
  double residual_norm = 0;     ///< norm of all ranks' residuals after the last step
  double relative_error = 0;  ///< in the last step: that norm over the norm of residual and gradient, for tensors with
                              ///< a residual
};

/// Compression of one run's buckets.
class Compressor {
 public:
  /// Result of TopK::save() on every rank.
  using States = std::vector<std::vector<std::byte>>;

  Compressor(collectives::Communicator& comm, const Compression& compression, std::span<const Bucket> buckets);

  /// Returns the options for the all-reduce of bucket `bucket`.
  collectives::Options options(std::size_t bucket);
  /// Collective. Returns the library's plan for the largest bucket and its reason. Returns an empty text without
  /// compression.
  std::string plan();

  /// Counts a step whose all-reduces are complete.
  void count_step();
  /// Collective. Returns the report of the steps since the last call. Returns nothing without compression or steps.
  std::optional<CompressionReport> take_report();

  /// Collective. Returns every rank's state on rank 0 and nothing on the other ranks. Returns nothing without top-k.
  States save() const;
  /// Restores the states that any number of ranks has saved. Throws std::invalid_argument in one line without any
  /// change.
  void load(const States& states);

 private:
  struct Tensor {
    std::string name;
    std::size_t count = 0;
    bool coded = false;  // fields for codecs: coded, raw_bytes, sent_bytes
    double raw_bytes = 0, sent_bytes = 0;
    std::string reason = {};
  };
  collectives::Options options_of(const Tensor& tensor);

  collectives::Communicator& comm_;
  const Compression compression_;
  std::vector<Tensor> tensors_;  // one for each bucket
  std::optional<collectives::TopK> top_k_;
  std::size_t steps_ = 0;
  CompressionReport sums_;  // sums over these steps on this rank
};

}  // namespace mnist
