// Implementation of the planner, which finds plans of calls. A plan names the algorithm that performs the call.
//
// The choice of a plan takes microseconds or more. The planner therefore stores each plan, and uses it again for later
// equal calls. The signature of a call holds the arguments on which ranks must agree, but no buffers. Two calls are
// equal if they have the same signature. In a v-form such as all_gather_v(), the counts and displacements must be
// equal, too.
//
// A PlannedCall holds the plan and everything else that equal calls share. The planner first compares a call with the
// previous call. If they differ, the planner looks up the hash of the signature in a map. If the map has no plan for
// the call, the function make() chooses a plan.
#include "planning/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <utility>

#include "collectives/error.hpp"
#include "core/collective.hpp"
#include "monitoring/flight_recorder.hpp"
#include "planning/listed_parts.hpp"
#include "planning/plan_call.hpp"

namespace collectives {
namespace {

/// Maximum number of stored plans. Without a maximum, a program whose calls always differ would need more and more
/// memory. At the maximum, the planner deletes all stored plans.
constexpr std::size_t kCachedPlans = 4096;

CollectiveSpec spec_of(const PlannedCall& planned) {
  return {.collective = planned.performed,
          .partial_sums = planned.plan.partial_sums,
          .coded = planned.plan.coded,
          .displaced = !planned.request.displacements.empty()};
}

/// Returns a hash of the top-k options on which messages depend. They must be equal on all ranks.
std::uint64_t hash_of(const TopKOptions& how) {
  const std::uint32_t words[] = {static_cast<std::uint32_t>(how.values),
                                 static_cast<std::uint32_t>(how.form),
                                 static_cast<std::uint32_t>(how.non_finite),
                                 how.error_feedback ? 1U : 0U,
                                 how.masking ? 1U : 0U,
                                 std::bit_cast<std::uint32_t>(how.momentum),
                                 std::bit_cast<std::uint32_t>(how.clip)};
  return hash_bytes(words, sizeof words);
}

/// Returns the options that hash_of() covers as text, for errors about ranks that pass different options.
std::string text_of(const TopKOptions& how) {
  constexpr std::string_view kForms[] = {"automatic", "gathered", "split"};
  constexpr std::string_view kNonFinite[] = {"propagate", "skip", "abort"};
  return fmt::format("momentum {}, clip {}, form {}, non-finite {}{}{}", how.momentum, how.clip,
                     kForms[static_cast<std::size_t>(how.form)], kNonFinite[static_cast<std::size_t>(how.non_finite)],
                     how.error_feedback ? "" : ", no error feedback", how.masking ? "" : ", no masking");
}

/// Returns the counts and displacements of a v-form that must be equal on all ranks, or nothing if each rank has its
/// own. Leaves out displacements if the parts simply follow one another.
PartLayout compared_parts(const Call& call) {
  if (!call.has_counts || has_local_counts(call.collective)) return {};
  return {call.counts, is_displaced(call) ? call.displacements : std::span<const std::size_t>()};
}

/// Returns the details of a call for error texts: the user op, the compression and the counts.
std::string details_of(const Call& call, const Options& options, const Codec* codec) {
  std::string details;
  if (const UserOp* const op = reduces(call.collective) ? call.op.user_op() : nullptr) {
    const std::string element = op->element_bytes == 0 ? "" : fmt::format(" of {} bytes", op->element_bytes);
    append_detail(details, Detail::op,
                  fmt::format("\"{}\"{}{}", std::string_view(op->name).substr(0, 64), element,
                              op->commutative ? "" : " not commutative"),
                  kOpBytes);
  }
  if (options.compressor != nullptr)
    append_detail(details, Detail::compression, text_of(options.compressor->options()), kCompressionBytes);
  else if (codec != nullptr)
    append_detail(details, Detail::compression,
                  fmt::format("{} elements in {} bytes", codec->block(), codec->encoded_bytes(codec->block())),
                  kCompressionBytes);
  if (const PartLayout compared = compared_parts(call); !compared.counts.empty()) append_parts(details, compared);
  if (!call.lengths.empty()) append_lengths(details, call.lengths);
  return details;
}

/// Finds out whether an algorithm consists of a single host Step, and describes this Step. A Step is one action of a
/// rank. In a host Step, all ranks of a host work together through shared memory. The executor can start such a call
/// directly, without the list of Steps. There is no description if the Step does not lead from the input to the output.
class SingleStep final : public StepSink {
 public:
  SingleStep(const HostCollective& host_collective, std::size_t element_bytes)
      : host_collective_(host_collective), element_bytes_(element_bytes) {}
  void operator()(const Step& step) override {
    call_.reset();
    if (++steps_ > 1 || step.kind == Step::Kind::exchange || step.subgroup != Subgroup::host ||
        step.source != Place::input || (step.destination != Place::output && step.kind != Step::Kind::host_barrier))
      return;
    call_.emplace().finish = step.finish;
    host_collective_.describe(step, element_bytes_, call_->task);
  }
  std::optional<HostCall> take() { return std::move(call_); }

 private:
  const HostCollective& host_collective_;
  const std::size_t element_bytes_;
  std::size_t steps_ = 0;
  std::optional<HostCall> call_;
};

/// Returns whether a rank gets no result from peers.
bool gets_no_result(const Signature& signature, Rank rank) {
  switch (signature.collective) {
    case Collective::broadcast:
    case Collective::scatter: return signature.root == rank;
    case Collective::reduce:
    case Collective::gather: return signature.root != rank;
    case Collective::scan:
    case Collective::exclusive_scan: return rank == 0;
    default: return false;
  }
}

std::optional<HostCall> single_step(const Algorithm& algorithm, const RankView& view, const RoundArgs& args,
                                    std::size_t element_bytes, const HostCollective& host_collective) {
  SingleStep step(host_collective, element_bytes);
  algorithm.emit(view, args, step);
  return step.take();
}

/// In an all_to_all_v, gather_v or scatter_v, a rank knows only the counts of its own blocks. Throws Error{unsupported}
/// if the backend cannot perform such a call, or if the buffers are in GPU memory.
void check_counted(const PlannedCall& planned) {
  const Signature& signature = planned.signature;
  if (!signature.has_counts || !has_local_counts(signature.collective)) return;
  const std::string_view collective = to_string(signature.collective);
  if (signature.memory == Memory::device)
    throw Error(Errc::unsupported,
                fmt::format("{0}: device memory has no {0}_v: pass buffers in host memory", collective));
  if (planned.request.backend == "auto" || planned.plan.backend == "hierarchical") return;
  throw Error(Errc::unsupported, fmt::format("backend \"{}\" has no {}_v; backends that have one: hierarchical",
                                             planned.request.backend, collective));
}

}  // namespace

RoundArgs args_of(const PlannedCall& planned) {
  return {spec_of(planned), planned.parts, planned.performed == Collective::barrier ? 0 : planned.signature.root};
}

const std::shared_ptr<const PlannedCall>& Planner::plan(const Call& call, const Options& options, std::size_t k) {
  const Rank rank = this->rank();
  const Codec* const codec = codec_of(options.wire, call, rank);
  // The name includes the block length of the codec and the encoded size of a block. Two codecs thus count as different
  // if one of these lengths differs, even if their names are equal.
  WireName wire = codec != nullptr
                      ? WireName(codec->name(), codec->block() << 32 ^ codec->encoded_bytes(codec->block()))
                      : WireName();
  if (options.compressor != nullptr) {
    const TopKOptions& how = options.compressor->options();
    char text[32];  // not a std::string, which would allocate memory in every call
    const auto written =
        fmt::format_to_n(text, sizeof text, "top {}{}", k, how.values == DataType::bf16 ? " bf16" : "");
    wire = WireName({text, std::min(written.size, sizeof text)}, wire.hash + hash_of(how));
  }
  const Signature signature = sign(call, rank, topology_.ranks(),
                                   options.backend.empty() ? defaults_.backend : std::string_view(options.backend),
                                   options.deterministic.value_or(defaults_.deterministic), wire, options.force);
  const PartLayout parts = compared_parts(call);
  const auto same = [&](const PlannedCall& planned) {
    return planned.signature == signature && std::ranges::equal(planned.request.counts, parts.counts) &&
           std::ranges::equal(planned.request.displacements, parts.displacements);
  };
  if (last_ != nullptr && same(*last_)) return last_;
  const std::uint64_t key = hash_of(signature);
  if (const auto found = plans_.find(key); found != plans_.end() && same(*found->second)) return last_ = found->second;

  std::shared_ptr<const PlannedCall> planned;
  try {
    planned = make(call, options, codec, k, signature);
  } catch (const Error& error) {  // a plan is the same on all ranks, so its error names no rank
    throw Error(error.code(), error.what(), rank, error.peer(), error.operation());
  }
  if (plans_.size() >= kCachedPlans) plans_.clear();
  plans_[key] = planned;
  return last_ = std::move(planned);
}

std::shared_ptr<const PlannedCall> Planner::make(const Call& call, const Options& options, const Codec* codec,
                                                 std::size_t k, const Signature& signature) const {
  const Rank rank = this->rank();
  const int ranks = topology_.ranks();
  auto planned = std::make_shared<PlannedCall>();
  planned->signature = signature;
  planned->hash = hash_of(signature);
  planned->words = pack(signature);
  planned->details = details_of(call, options, codec);
  planned->waits_for_no_peer = gets_no_result(signature, rank);
  const PartLayout listed = compared_parts(call);
  planned->request = {.collective = signature.collective,
                      .count = signature.count,
                      .type = signature.type,
                      .op = call.op,
                      .root = signature.root,
                      .deterministic = signature.deterministic,
                      .backend = backend_names()[signature.backend],
                      .counts = {listed.counts.begin(), listed.counts.end()},
                      .displacements = {listed.displacements.begin(), listed.displacements.end()},
                      .codec = codec,
                      .force = signature.force,
                      .memory = signature.memory};
  const bool known_empty = signature.count == 0 && !(signature.has_counts && has_local_counts(signature.collective));
  planned->performed = known_empty ? Collective::barrier : signature.collective;
  Request request = planned->request;
  request.collective = planned->performed;
  std::optional<TopKCall> top_k;
  if (options.compressor != nullptr) top_k.emplace(TopKCall{k, options.compressor->options()});
  CallPlan made = plan_call(request, topology_, tuning_, top_k ? &*top_k : nullptr);
  planned->plan = std::move(made.plan);
  check_counted(*planned);
  planned->sparse = std::move(made.sparse);
  planned->shape = shape_of(signature, planned->plan);
  // Parts are counted in elements of the op, so that no cut lies inside one.
  const std::size_t element = element_bytes_of(signature.type, call.op), each = element / size_of(signature.type);
  const Range whole{0, signature.count / each};
  if (!planned->plan.algorithm->by_part(spec_of(*planned), topology_)) {
    planned->parts = Parts::equal(whole, 1);
  } else if (listed.counts.empty() || signature.count == 0) {
    planned->parts = Parts::equal(whole, ranks);
  } else {
    planned->parts = listed_parts(listed, each, planned->offsets);
  }
  if (topology_.one_host() && planned->plan.rounds == 1)
    planned->single_step = single_step(*planned->plan.algorithm, view_, args_of(*planned), element, host_collective_);
  return planned;
}

void Planner::forget() noexcept {
  plans_.clear();
  last_ = nullptr;
}

}  // namespace collectives
