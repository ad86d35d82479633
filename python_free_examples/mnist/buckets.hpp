// Gradients travel in buckets, last layer first, and set off while the backward pass still computes the layers before.
// What else has the shape of the gradients, weights and moments, is averaged in the same buckets, and never compressed.
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

/// Cuts [0, count) from its end: a bucket is a run of whole layers of at most `bucket_elements` together, or a piece of
/// one layer that is longer. So no piece waits for a layer that it is not part of.
/// `layer_offsets` ascends from 0; the buckets come last layer first.
std::vector<Bucket> cut_buckets(const std::vector<std::size_t>& layer_offsets, std::size_t count,
                                std::size_t bucket_elements);
/// One bucket per layer, however long it is; the last layer comes first.
std::vector<Bucket> cut_by_layer(const std::vector<std::size_t>& layer_offsets, std::size_t count);

/// Seconds since the last take_times().
struct CommunicationTimes {
  double exposed = 0;  ///< spent inside the library: the step would be this much shorter without communication
  double hidden = 0;   ///< communication under way while the step computed
};

/// Sums one step's gradients over the ranks, in place. With `overlap` a bucket sets off as soon as it is final;
/// without, the same buckets are reduced one after the other at the end, so both give the same bits.
class GradientReducer {
 public:
  /// `gradients`, in the memory of `device`, stays the caller's; all three must outlive this.
  GradientReducer(collectives::Communicator& comm, Device& device, std::span<float> gradients,
                  const std::vector<std::size_t>& layer_offsets, std::size_t bucket_bytes, bool overlap,
                  const Compression& compression = {});

  /// The gradients from element `from` to the end are final. Starts the buckets that are complete and moves on those
  /// under way.
  void ready(std::size_t from);
  /// All gradients are final: returns when all are reduced. The next step may begin.
  void finish();
  /// Between two steps: averages `values` over the ranks, in place. They are as many as the gradients, or a multiple.
  void average(std::span<float> values);

  CommunicationTimes take_times() { return std::exchange(times_, {}); }
  Compressor& compressor() { return compressor_; }

 private:
  using Clock = std::chrono::steady_clock;

  void enter(Clock::time_point now);
  void start_until(std::size_t from);
  void leave(Clock::time_point entered);
  void move_on();
  void compute_to_the_end();
  std::span<float> elements(const Bucket& bucket) {
    return gradients_.subspan(bucket.begin, bucket.end - bucket.begin);
  }
  void wait_for_all();

  /// What was asked for, of the device's memory.
  collectives::Options on_device(collectives::Options options) const;

  collectives::Communicator& comm_;
  Device& device_;
  std::span<float> gradients_;
  std::vector<Bucket> buckets_;
  Compressor compressor_;
  bool overlap_;
  // Of the step under way: work_[i] is bucket i, the first finished_ are known to be done. Empty between two.
  std::vector<collectives::Work> work_;
  std::size_t finished_ = 0;
  Clock::time_point left_;  // the last door
  CommunicationTimes times_;
};

}  // namespace mnist
