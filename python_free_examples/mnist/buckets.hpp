// Buckets: sum the gradients over the ranks. A bucket is a range of the gradients that one all-reduce sums. The
// backward pass begins with the gradients of the last layer. The all-reduce of their bucket starts at once, and runs
// while the pass computes the gradients of earlier layers.
//
// In training with local steps, the ranks also average their weights and the state of the optimizer. These vectors have
// the same buckets. They are never compressed.
#pragma once

#include <chrono>
#include <collectives/communicator.hpp>
#include <cstddef>
#include <span>
#include <vector>

#include "compression.hpp"
#include "device.hpp"

namespace mnist {

/// Elements [begin, end) of the vector of all gradients.
struct Bucket {
  std::size_t begin = 0, end = 0;
  bool operator==(const Bucket&) const = default;
};

/// Cuts [0, count) into buckets from its end. A bucket consists of adjacent whole layers with at most `bucket_elements`
/// elements together, or is a part of a longer layer. A part of a long layer is in a bucket of its own, so that its
/// all-reduce never waits for another layer.
///
/// `layer_offsets` has the first element of each layer, ascending. The buckets are ordered from the last layer to the
/// first.
std::vector<Bucket> cut_buckets(const std::vector<std::size_t>& layer_offsets, std::size_t count,
                                std::size_t bucket_elements);
/// Returns one bucket per layer, however long, ordered from the last layer to the first.
std::vector<Bucket> cut_by_layer(const std::vector<std::size_t>& layer_offsets, std::size_t count);

/// Times in seconds since the previous call of take_times().
struct CommunicationTimes {
  double exposed = 0;  ///< time in which the step waits for communication and computes nothing
  double hidden = 0;   ///< time in which an all-reduce overlaps computing
};

/// Sums one step's gradients over the ranks, in place.
///
/// With `overlap`, the all-reduce of a bucket starts as soon as its gradients are final. Without `overlap`, finish()
/// reduces the same buckets one after another. The results have the same bits in both cases.
class GradientReducer {
 public:
  /// Reduces `gradients`, which are in the memory of `device`. The first three arguments must outlive this object.
  GradientReducer(collectives::Communicator& comm, Device& device, std::span<float> gradients,
                  const std::vector<std::size_t>& layer_offsets, std::size_t bucket_bytes, bool overlap,
                  const Compression& compression = {});

  /// Reports that the gradients from element `from` to the end are final. Starts the buckets that are complete and
  /// progresses those in flight.
  void ready(std::size_t from);
  /// Reports that all gradients are final. Blocks until all are reduced.
  void finish();
  /// Averages `values` over the ranks, in place. Call it between two steps. The number of values is a multiple of the
  /// number of gradients.
  void average(std::span<float> values);

  CommunicationTimes take_times() { return std::exchange(times_, {}); }
  Compressor& compressor() { return compressor_; }

 private:
  using Clock = std::chrono::steady_clock;

  void enter(Clock::time_point now);
  void start_until(std::size_t from);
  void leave(Clock::time_point entered);
  void progress();
  void compute_to_the_end();
  std::span<float> elements(const Bucket& bucket) {
    return gradients_.subspan(bucket.begin, bucket.end - bucket.begin);
  }
  void wait_for_all();

  /// Returns the options with the stream of the device.
  collectives::Options on_device(collectives::Options options) const;

  collectives::Communicator& comm_;
  Device& device_;
  std::span<float> gradients_;
  std::vector<Bucket> buckets_;
  Compressor compressor_;
  bool overlap_;
  // State of the current step: work_[i] is bucket i, and the first finished_ buckets are complete. Empty between steps.
  std::vector<collectives::Work> work_;
  std::size_t finished_ = 0;
  Clock::time_point left_;  // end of the last timed function
  CommunicationTimes times_;
};

}  // namespace mnist
