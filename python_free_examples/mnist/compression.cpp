// Implementation of the compression of gradients: the options, and a report on the effect. A codec converts each
// element to fewer bytes. It sends equally many bytes in every call, so the report takes this number from the plan of
// the library. Top-k sends only the largest elements. The library reports their number after every call.
#include "compression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "buckets.hpp"

namespace mnist {
namespace {

using collectives::Collective;
using collectives::DataType;
using collectives::ReduceOp;

collectives::WireFormat wire_of(CompressionKind kind) {
  switch (kind) {
    case CompressionKind::bf16: return DataType::bf16;
    case CompressionKind::fp16: return DataType::f16;
    case CompressionKind::int8: return collectives::int8_codec();
    case CompressionKind::none:
    case CompressionKind::top_k: break;
  }
  return {};
}

}  // namespace

double parse_density(std::string_view text) {
  double density = 0;
  const auto [unit, error] = std::from_chars(text.data(), text.data() + text.size(), density);
  const std::string_view rest(unit, static_cast<std::size_t>(text.data() + text.size() - unit));
  if (rest == "%") density /= 100;
  if (error != std::errc() || !(rest.empty() || rest == "%") || !(density > 0 && density <= 1))
    throw std::invalid_argument(fmt::format("\"{}\": expected a density above 0 and up to 1, as 0.01 or 1%", text));
  return density;
}

void Compression::choose(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto found = std::ranges::find(kCompressionNames, text.substr(0, colon));
  const auto chosen = static_cast<CompressionKind>(found - std::begin(kCompressionNames));
  if (found == std::end(kCompressionNames) || (colon < text.size() && chosen != CompressionKind::top_k))
    throw std::invalid_argument(fmt::format("\"{}\": expected none, bf16, fp16, int8, top_k or top_k:DENSITY", text));
  kind = chosen;
  if (colon < text.size()) top_k.density = parse_density(text.substr(colon + 1));
}

std::string Compression::choice() const {
  const std::string_view name = kCompressionNames[static_cast<std::size_t>(kind)];
  return kind == CompressionKind::top_k ? fmt::format("{}:{}", name, top_k.density) : std::string(name);
}

std::string Compression::text() const {
  std::string text = choice();
  if (kind == CompressionKind::top_k) {
    if (!top_k.error_feedback) text += ", no error feedback";
    if (top_k.momentum > 0) text += fmt::format(", momentum correction {}", top_k.momentum);
    if (top_k.warm_up_calls > 0)
      text += fmt::format(", {} warm-up steps from {}", top_k.warm_up_calls, top_k.warm_up_density);
    if (top_k.clip > 0) text += fmt::format(", clipped to {}", top_k.clip);
    if (top_k.values != DataType::f32) text += fmt::format(", values {}", to_string(top_k.values));
    if (top_k.non_finite != collectives::NonFinite::propagate)
      text += fmt::format(", non-finite {}", kNonFiniteNames[static_cast<std::size_t>(top_k.non_finite)]);
    if (by_layer) text += ", by layer";
  }
  if (force) text += ", forced";
  return text;
}

Compressor::Compressor(collectives::Communicator& comm, const Compression& compression, std::span<const Bucket> buckets)
    : comm_(comm), compression_(compression) {
  if (compression.kind == CompressionKind::none) return;
  for (const Bucket& bucket : buckets)
    tensors_.push_back(
        {.name = fmt::format("gradients {}..{}", bucket.begin, bucket.end), .count = bucket.end - bucket.begin});
  if (compression.kind == CompressionKind::top_k) {
    top_k_.emplace(compression.top_k);
    return;
  }
  for (Tensor& tensor : tensors_) {
    const auto plan = [&](const collectives::Options& options) {
      return comm.plan(Collective::all_reduce, tensor.count, DataType::f32, ReduceOp::sum, options);
    };
    const collectives::Plan coded = plan(options_of(tensor));
    tensor.coded = coded.coded;
    tensor.reason = coded.codec_reason;
    tensor.raw_bytes = static_cast<double>(plan({}).estimate.bytes_sent);
    tensor.sent_bytes = static_cast<double>(coded.estimate.bytes_sent);
  }
}

collectives::Options Compressor::options_of(const Tensor& tensor) {
  if (top_k_) return {.name = tensor.name, .compressor = &*top_k_, .force = compression_.force};
  return {.name = tensor.name, .wire = wire_of(compression_.kind), .force = compression_.force};
}

collectives::Options Compressor::options(std::size_t bucket) {
  return tensors_.empty() ? collectives::Options{} : options_of(tensors_[bucket]);
}

std::string Compressor::plan() {
  if (tensors_.empty()) return {};
  const Tensor& largest = *std::ranges::max_element(tensors_, {}, &Tensor::count);
  const std::string plan =
      comm_.explain(Collective::all_reduce, largest.count, DataType::f32, ReduceOp::sum, options_of(largest));
  const std::string_view key = top_k_ ? "compressor: " : "wire: ";
  const std::size_t at = plan.find(key);
  return fmt::format(
      "compression of {} (the largest bucket): {}", largest.name,
      at == std::string::npos ? "not planned" : plan.substr(at + key.size(), plan.find('\n', at) - at - key.size()));
}

void Compressor::count_step() {
  if (tensors_.empty()) return;
  ++steps_;
  const Tensor* dense = nullptr;  // the largest tensor that was sent without compression
  for (Tensor& tensor : tensors_) {
    bool compressed = tensor.coded;
    if (top_k_) {
      const collectives::TopKReport report = top_k_->report(tensor.name, false);
      compressed = report.sparse;
      tensor.raw_bytes = static_cast<double>(report.raw_bytes);
      tensor.sent_bytes = static_cast<double>(report.sent_bytes);
      tensor.reason = report.reason;
      sums_.chosen += static_cast<double>(report.chosen);
      // If a tensor is sent without compression, ranks send all of its elements.
      sums_.union_size += static_cast<double>(report.sparse ? report.union_size : report.count);
      sums_.coding_ms += 1e3 * report.coding_seconds;
    }
    sums_.raw_bytes += tensor.raw_bytes;
    sums_.sent_bytes += tensor.sent_bytes;
    sums_.gradient_bytes += static_cast<double>(tensor.count * sizeof(float));
    sums_.compressed_share += compressed ? 1 : 0;  // a count until take_report() divides it
    if (!compressed && (dense == nullptr || tensor.count > dense->count)) dense = &tensor;
  }
  if (dense != nullptr) sums_.reason = dense->reason;
}

std::optional<CompressionReport> Compressor::take_report() {
  if (steps_ == 0) return {};
  CompressionReport report = std::exchange(sums_, {});
  if (top_k_)
    for (const Tensor& tensor : tensors_) {
      const collectives::TopKReport last = top_k_->report(tensor.name);
      const double squared = last.residual_norm * last.residual_norm;
      report.residual_norm += squared;  // a sum of squares until take_report() takes the root
      if (last.relative_error > 0)      // adds (residual_norm / relative_error)^2; a relative_error of 0 is unknown
        report.relative_error += squared / (last.relative_error * last.relative_error);
    }
  const double steps = static_cast<double>(std::exchange(steps_, 0)), ranks = comm_.size();
  std::array<double, 8> sums = {report.raw_bytes,  report.sent_bytes, report.compressed_share, report.chosen,
                                report.union_size, report.coding_ms,  report.residual_norm,    report.relative_error};
  comm_.all_reduce(sums);
  const auto of_a_step = [&](double sum) { return sum / (steps * ranks); };
  report.raw_bytes = of_a_step(sums[0]);
  report.sent_bytes = of_a_step(sums[1]);
  report.gradient_bytes /= steps;
  report.compressed_share = of_a_step(sums[2]) / static_cast<double>(tensors_.size());
  report.top_k = top_k_.has_value();
  report.chosen = of_a_step(sums[3]);
  report.union_size = of_a_step(sums[4]);
  report.coding_ms = of_a_step(sums[5]);
  report.residual_norm = std::sqrt(sums[6]);
  report.relative_error = sums[7] > 0 ? std::sqrt(sums[6] / sums[7]) : 0;
  return report;
}

Compressor::States Compressor::save() const {
  States states;
  if (!top_k_) return states;
  // Gathers the states of one rank after another, so that only rank 0 needs memory for all of them.
  for (collectives::Rank rank = 0; rank < comm_.size(); ++rank) {
    std::vector<std::byte> state;
    if (rank == comm_.rank()) state = top_k_->save();
    std::uint64_t bytes = state.size();
    comm_.broadcast(std::span(&bytes, 1), rank);
    state.resize(bytes);
    comm_.broadcast({state.data(), state.size(), DataType::u8}, rank);
    if (comm_.rank() == 0) states.push_back(std::move(state));
  }
  return states;
}

void Compressor::load(const States& states) {
  collectives::TopK loaded(compression_.top_k);
  try {
    loaded.load(states, comm_.rank(), comm_.size());
  } catch (const collectives::Error& error) {
    throw std::invalid_argument(error.what());
  }
  for (const std::string& name : loaded.names())
    if (std::ranges::find(tensors_, name, &Tensor::name) == tensors_.end())
      throw std::invalid_argument(fmt::format("it keeps something of {}, which is no bucket of this run", name));
  top_k_ = std::move(loaded);
}

}  // namespace mnist
