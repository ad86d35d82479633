// Implementation of the buckets. A bucket is a range of the gradients that one all-reduce sums over the ranks. This
// file also measures times. Time in ready(), finish() and average() is exposed: the training step waits for
// communication. Time outside these functions is hidden if an all-reduce has started and not ended: it overlaps
// computing.
//
// The CPU may call finish() or average() while a GPU is still computing. These functions therefore first wait for the
// GPU, and progress the started all-reduces during this wait. The wait counts as computing: exposed time starts when
// the GPU is idle.
#include "buckets.hpp"

#include <algorithm>
#include <utility>

namespace mnist {
namespace {

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

std::vector<Bucket> cut_buckets(const std::vector<std::size_t>& layer_offsets, std::size_t count,
                                std::size_t bucket_elements) {
  std::vector<Bucket> buckets;
  std::size_t end = count;  // end of the current layer
  Bucket run{end, end};     // range of layers that are not in a bucket yet
  const auto close_run = [&] {
    if (run.begin < run.end) buckets.push_back(run);
    run = {end, end};
  };
  for (auto layer = layer_offsets.rbegin(); layer != layer_offsets.rend(); ++layer) {
    const std::size_t begin = *layer;
    if (run.end - begin > bucket_elements) close_run();
    if (end - begin > bucket_elements) {
      for (std::size_t rest = end; rest > begin; rest = buckets.back().begin)
        buckets.push_back({rest - std::min(bucket_elements, rest - begin), rest});
      run = {begin, begin};
    }
    run.begin = end = begin;
  }
  close_run();
  return buckets;
}

std::vector<Bucket> cut_by_layer(const std::vector<std::size_t>& layer_offsets, std::size_t count) {
  std::vector<Bucket> buckets;
  for (auto layer = layer_offsets.rbegin(); layer != layer_offsets.rend(); ++layer)
    buckets.push_back({*layer, buckets.empty() ? count : buckets.back().begin});
  return buckets;
}

GradientReducer::GradientReducer(collectives::Communicator& comm, Device& device, std::span<float> gradients,
                                 const std::vector<std::size_t>& layer_offsets, std::size_t bucket_bytes, bool overlap,
                                 const Compression& compression)
    : comm_(comm),
      device_(device),
      gradients_(gradients),
      buckets_(compression.by_layer ? cut_by_layer(layer_offsets, gradients.size())
                                    : cut_buckets(layer_offsets, gradients.size(),
                                                  std::max<std::size_t>(bucket_bytes / sizeof(float), 1))),
      compressor_(comm, compression, buckets_),
      overlap_(overlap) {
  work_.reserve(buckets_.size());
}

void GradientReducer::ready(std::size_t from) {
  if (!overlap_) return;
  const auto entered = Clock::now();
  enter(entered);
  start_until(from);
  progress();
  leave(entered);
}

void GradientReducer::finish() {
  ready(0);
  compute_to_the_end();
  const auto entered = Clock::now();
  enter(entered);
  if (overlap_) {
    wait_for_all();
  } else {
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      comm_.all_reduce(elements(buckets_[i]), collectives::ReduceOp::sum, on_device(compressor_.options(i)));
    wait_for(device_);  // the device may still be performing the additions
  }
  leave(entered);
}

void GradientReducer::average(std::span<float> values) {
  compute_to_the_end();
  const auto entered = Clock::now();
  for (; !values.empty(); values = values.subspan(gradients_.size()))
    for (const Bucket& bucket : buckets_) {
      const std::span<float> part = values.subspan(bucket.begin, bucket.end - bucket.begin);
      work_.push_back(comm_.all_reduce_async(part, part, collectives::ReduceOp::average, on_device({})));
    }
  wait_for_all();
  leave(entered);
}

void GradientReducer::wait_for_all() {
  for (collectives::Work& work : work_) work.wait();
  work_.clear();
  finished_ = 0;
}

void GradientReducer::progress() {
  while (finished_ < work_.size() && work_[finished_].test()) ++finished_;
}

void GradientReducer::compute_to_the_end() {
  wait_for(device_, [this] {
    const auto now = Clock::now();
    enter(now);
    left_ = now;
    progress();
  });
}

collectives::Options GradientReducer::on_device(collectives::Options options) const {
  options.stream = device_.stream();
  return options;
}

void GradientReducer::enter(Clock::time_point now) {
  if (finished_ < work_.size()) times_.hidden += seconds(now - left_);
}

void GradientReducer::leave(Clock::time_point entered) {
  left_ = Clock::now();
  times_.exposed += seconds(left_ - entered);
}

void GradientReducer::start_until(std::size_t from) {
  while (work_.size() < buckets_.size() && buckets_[work_.size()].begin >= from) {
    const std::span<float> part = elements(buckets_[work_.size()]);
    work_.push_back(
        comm_.all_reduce_async(part, part, collectives::ReduceOp::sum, on_device(compressor_.options(work_.size()))));
  }
}

}  // namespace mnist
