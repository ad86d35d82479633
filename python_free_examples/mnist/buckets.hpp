// Sums the gradients over the ranks in buckets. A bucket is a range of the gradients that one all-reduce sums. The
// backward pass computes the last layer first, so its bucket starts first, while the pass still computes earlier
// layers.
//
// Weights, and the state (moments) of the optimizer, are as long as the gradients. They are averaged in the same
// buckets and are never compressed.
#pragma once

#include <chrono>
#include <collectives/communicator.hpp>
#include <cstddef>
#include <span>
#include <vector>

#include "compression.hpp"
#include "device.hpp"

namespace mnist {

/// Elements [begin, end) of the flat gradient.
struct Bucket {
  std::size_t begin = 0, end = 0;
  bool operator==(const Bucket&) const = default;
};

/// Cuts [0, count) into buckets from its end. A bucket is a run of whole layers with at most `bucket_elements` elements
/// together, or a part of one longer layer. A part of a long layer therefore never waits for the
/// gradients of another layer.
///
/// `layer_offsets` ascends from 0. The buckets are in order from the last layer to the first.
std::vector<Bucket> cut_buckets(const std::vector<std::size_t>& layer_offsets, std::size_t count,
                                std::size_t bucket_elements);
/// Returns one bucket for each layer, of any length, from the last layer to the first.
std::vector<Bucket> cut_by_layer(const std::vector<std::size_t>& layer_offsets, std::size_t count);

/// Times in seconds since the last take_times().
struct CommunicationTimes {
  double exposed = 0;  ///< time in which the step waits for communication and computes nothing
  double hidden = 0;   ///< time in which a bucket is in flight while the step computes
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
