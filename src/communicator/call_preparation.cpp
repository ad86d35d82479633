// Implementation of CallPreparation, which does the work that precedes the data exchange of a call.
//
// It checks the arguments, finds out whether the buffers are in host or GPU memory, and chooses a plan. A plan names
// the algorithm of the call. If one of these actions fails, this rank refuses the call: it throws an error and puts a
// refusal into the queue of operations. A refusal is an operation that moves no data. It only publishes the reason.
// Other ranks that perform the same call therefore get an error instead of waiting for this rank.
#include "communicator/call_preparation.hpp"

#include <fmt/format.h>

#include <new>
#include <string>
#include <utility>

#include "compression/top_k/top_k_impl.hpp"
#include "device/placement.hpp"

namespace collectives {
namespace {

/// Returns the error text `text` without the name of the collective, with which it may begin.
std::string_view reason_in(std::string_view text, const Call& call) {
  const std::string collective = fmt::format("{}: ", to_string(call.collective));
  if (text.starts_with(collective)) text.remove_prefix(collective.size());
  return text;
}

/// Returns the refusal, the operation that takes the place of a refused call. `why`: text of the error that the rank
/// throws.
std::shared_ptr<Operation> refusal_of(const Call& call, std::string_view why, std::string_view name) {
  auto refused = std::make_shared<PlannedCall>();
  refused->signature = sign_refusal(call);
  refused->hash = hash_of(refused->signature);
  refused->words = pack(refused->signature);
  refused->plan.name = "refused";
  refused->shape = shape_of(refused->signature, refused->plan);
  append_detail(refused->details, Detail::refusal, reason_in(why, call), kRefusalBytes);
  auto refusal = std::make_shared<Operation>();
  refusal->hash = refused->hash;
  refusal->call = std::move(refused);
  if (name.size() <= kLongestName) refusal->name = name;
  refusal->has_details = refusal->refused = true;
  refusal->queue_again();
  return refusal;
}

}  // namespace

// ---- planning ----

const std::shared_ptr<const PlannedCall>& CallPreparation::plan(const Call& call, const Options& options) {
  std::size_t k = 0;
  if (options.compressor != nullptr) {
    codec_of(options.wire, call, resources_.rank());  // throws if the wire format is invalid
    check_compressor(call, options.name, resources_.rank());
    k = options.compressor->impl().next_k(options.name, call.output.count, resources_.rank());
  }
  return resources_.planner->plan(call, options, k);
}

std::shared_ptr<const PlannedCall> CallPreparation::plan_of(Collective collective, std::size_t count, DataType type,
                                                            ReduceOp op, const Options& options) {
  const auto size = static_cast<std::size_t>(resources_.size());
  const std::size_t part = (count + size - 1) / size;
  const Call call{.collective = collective,
                  .input = {nullptr, collective == Collective::gather ? part : count, type},
                  .output = {nullptr, collective == Collective::scatter ? part : count, type},
                  .op = op,
                  .memory = options.stream ? Memory::device : Memory::host};
  check_vocabulary(call, resources_.rank());
  return plan(call, options);
}

// ---- refusing ----

void throw_refusal(const Error& error, const Call& call, std::uint64_t number, std::string_view name) {
  if (number == 0) throw error;
  const std::string label = label_of(sign_refusal(call), number, name.size() > kLongestName ? "" : name);
  throw Error(error.code(), fmt::format("{}: {}", label, reason_in(error.what(), call)), error.rank(), error.peer(),
              label);
}

std::uint64_t CallPreparation::refuse(const Call& call, std::string_view why, std::string_view name) noexcept {
  const auto lock = progress_thread_.guard();
  return refuse_locked(call, why, name);
}

std::uint64_t CallPreparation::refuse_locked(const Call& call, std::string_view why, std::string_view name) noexcept {
  if (queue_.has_failed()) return 0;
  const std::uint64_t number = queue_.next_sequence();
  try {
    const auto refusal = refusal_of(call, why, name);
    resources_.observer->issue_async(*refusal);
    queue_.issue(refusal);
  } catch (const std::bad_alloc&) {  // without memory, the refusal is not published; this rank still throws its error
    return 0;
  }
  if (!queue_.is_idle()) {
    progress_thread_.attach();
    progress_thread_.notify();
  }
  return number;
}

void CallPreparation::check(const Call& call, const Options& options) {
  try {
    check_arguments(call, resources_.rank(), resources_.size());
    check_name(call, options.name, resources_.rank());
  } catch (const Error& error) {
    throw_refusal(error, call, refuse(call, error.what(), options.name), options.name);
  }
}

std::shared_ptr<const PlannedCall> CallPreparation::prepare(Call& call, const Options& options,
                                                            std::exception_ptr& refused) {
  try {
    if (refused == nullptr)
      refused = device_calls_.place(call, options);
    else
      call.memory = Memory::device;
    const std::shared_ptr<const PlannedCall>& planned = plan(call, options);
    if (planned->plan.device_path == DevicePath::nccl) check_alignment(call, resources_.rank());
    return planned;
  } catch (const Error& error) {
    throw_refusal(error, call, refuse_locked(call, error.what(), options.name), options.name);
  } catch (const std::exception& error) {
    refuse_locked(call, error.what(), options.name);
    throw;
  }
}

void CallPreparation::check_member(Call& call, const Options& options, bool is_planned, std::exception_ptr& refused) {
  check(call, options);
  const auto lock = progress_thread_.guard();
  queue_.throw_failure();
  if (!is_planned) prepare(call, options, refused);
}

}  // namespace collectives
