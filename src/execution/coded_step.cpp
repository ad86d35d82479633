// Implementation of CodedStep, which performs Steps whose messages are encoded. A Step is one action of a rank, such as
// to receive messages and add them. A codec converts f32 values to fewer bytes and back.
//
// Received values are decoded and added tile by tile. A tile is a range of about 1,024 elements. The decoded tiles of
// several ranks therefore stay in the first-level cache until they are added.
#include "execution/coded_step.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "reduction/reduction.hpp"

namespace collectives {
namespace {

/// Minimum number of elements of a tile. They take 4 KiB as f32, so tiles of several ranks fit in the first-level
/// cache. A codec encodes whole blocks of elements. If the minimum is no multiple of the block, a tile is longer.
constexpr std::size_t kTile = 1024;

}  // namespace

void CodedStep::start(const Job& job) {
  job_ = &job;
  codec_ = job.codec;
  const std::size_t block = std::max<std::size_t>(1, codec_->block());
  tile_ = (kTile + block - 1) / block * block;
  encoded_.resize(codec_->encoded_bytes(tile_));
  aligned_.resize(tile_);
  sources_.resize(view_.world.members.size());
}

void CodedStep::perform(const Step& step) {
  const auto begun = std::chrono::steady_clock::now();
  const std::size_t bytes = codec_->encoded_bytes(step.range.count);
  std::byte* const destination = places_.address(step.destination, step.range);
  std::byte* const frame = messages_.first_frame(step);
  const std::byte* value = frame;
  if (step.reduce) {
    add(step, destination, frame);
  } else if (step.from.empty()) {
    std::byte* const source = places_.address(step.source, step.range);
    round(source,
          destination != nullptr         ? destination
          : step.source == Place::output ? source
                                         : nullptr,
          frame, step.range.count);
  } else {
    value = messages_.taken(step.from[0], bytes).data;
    if (destination != nullptr) decode(value, destination, step.range.count);
  }
  report_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const std::uint64_t before = messages_.bytes_sent();
  messages_.hand_on(step, bytes, nullptr, [&](std::byte* to) {
    if (to != value && bytes > 0) std::memcpy(to, value, bytes);
  });
  const std::uint64_t sent = messages_.bytes_sent() - before;
  report_.sent_bytes += sent;
  report_.raw_bytes += sent / std::max<std::size_t>(1, bytes) * step.range.count * size_of(job_->type);
}

template <class Visit>
void CodedStep::for_each_tile(std::size_t count, Visit&& visit) const {
  for (std::size_t first = 0; first < count; first += tile_) visit(first, std::min(tile_, count - first));
}

/// Encodes `values` into `wire`. A codec requires aligned values, so unaligned values are first copied to `aligned_`.
void CodedStep::encode(const std::byte* values, std::size_t count, std::byte* wire) {
  if (reinterpret_cast<std::uintptr_t>(values) % alignof(float) == 0)
    return codec_->encode({reinterpret_cast<const float*>(values), count}, wire);
  for_each_tile(count, [&](std::size_t first, std::size_t elements) {
    std::memcpy(aligned_.data(), values + first * sizeof(float), elements * sizeof(float));
    codec_->encode({aligned_.data(), elements}, wire + codec_->encoded_bytes(first));
  });
}

/// Decodes `wire` into `values`, through `aligned_` if `values` is not aligned.
void CodedStep::decode(const std::byte* wire, std::byte* values, std::size_t count) {
  if (reinterpret_cast<std::uintptr_t>(values) % alignof(float) == 0)
    return codec_->decode(wire, {reinterpret_cast<float*>(values), count});
  for_each_tile(count, [&](std::size_t first, std::size_t elements) {
    codec_->decode(wire + codec_->encoded_bytes(first), {aligned_.data(), elements});
    std::memcpy(values + first * sizeof(float), aligned_.data(), elements * sizeof(float));
  });
}

/// Encodes `values` into `frame`, the memory of an outgoing message. Decodes the message into `seen`, which then holds
/// the same rounded values that receivers get. `frame` or `seen` may be null.
void CodedStep::round(const std::byte* values, std::byte* seen, std::byte* frame, std::size_t count) {
  for_each_tile(count, [&](std::size_t first, std::size_t elements) {
    std::byte* const wire = frame != nullptr ? frame + codec_->encoded_bytes(first) : encoded_.data();
    encode(values + first * sizeof(float), elements, wire);
    if (seen != nullptr) decode(wire, seen + first * sizeof(float), elements);
  });
}

/// Adds the values of all ranks that contribute to `step`. Encoding and decoding round the values of all other ranks.
/// This rank therefore encodes and decodes its own values, too. Otherwise the sum would depend on which rank adds.
void CodedStep::add(const Step& step, std::byte* destination, std::byte* frame) {
  const std::size_t bytes = codec_->encoded_bytes(step.range.count), terms = step.from.size();
  if (decoded_.size() < (terms + 1) * tile_) decoded_.resize((terms + 1) * tile_);
  for_each_tile(step.range.count, [&](std::size_t first, std::size_t elements) {
    const std::size_t before = first * sizeof(float), coded_before = codec_->encoded_bytes(first);
    for (std::size_t i = 0; i < terms; ++i) {
      auto* const space = reinterpret_cast<std::byte*>(decoded_.data() + i * tile_);
      if (!messages_.is_self(step.from[i])) {
        decode(messages_.taken(step.from[i], bytes).data + coded_before, space, elements);
        sources_[i] = {space, step.unreduced};
      } else if (terms > 1) {
        round(places_.address(step.source, step.range) + before, space, nullptr, elements);
        sources_[i] = {space, step.source == Place::input};
      } else {
        sources_[i] = {places_.address(step.source, step.range) + before, step.source == Place::input};
      }
    }
    std::byte* const sum =
        destination != nullptr ? destination + before : reinterpret_cast<std::byte*>(decoded_.data() + terms * tile_);
    fold(job_->op, job_->type, {sources_.data(), terms}, sum, elements, step.finish ? view_.world.size() : 0);
    if (frame != nullptr) round(sum, destination != nullptr ? sum : nullptr, frame + coded_before, elements);
  });
}

}  // namespace collectives
