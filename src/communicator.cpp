// From the call to the wire, hop 1: check the arguments, ask for a plan, publish the arrival, run.
#include "collectives/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

#include "communicator_impl.hpp"
#include "environment.hpp"
#include "log.hpp"
#include "reduction.hpp"
#include "transport/shared_memory.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;

/// Plans kept at most; a program that asks for more different calls than this plans some of them again.
constexpr std::size_t kPlansKept = 4096;

[[noreturn]] void refuse(const Call& call, Rank rank, const std::string& why, Errc code = Errc::invalid_argument) {
  throw Error(code, fmt::format("{}: {}", to_string(call.collective), why), rank, kNoRank,
              std::string(to_string(call.collective)));
}

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

/// Address of element 0 of the vector, for a buffer that begins with element `first`. Never used to reach outside of
/// it.
template <class Byte, class Void>
Byte* from_element(Void* data, std::size_t first, std::size_t element_bytes) {
  return reinterpret_cast<Byte*>(reinterpret_cast<std::uintptr_t>(data) - first * element_bytes);
}

}  // namespace

// ---- construction ----

Communicator::Impl::Impl(Bootstrap& bootstrap, const CommunicatorOptions& options)
    : settings(settle(options)), wires(bootstrap.wire_factory()), meeting(meet(bootstrap, settings)) {
  seat = std::make_unique<Seat>(meeting.topology, meeting.rank);
  const bool alone_here = meeting.arena->ranks() == 1;
  const std::string_view inside = meeting.threads ? "local" : "shared_memory";
  local = std::make_unique<SharedMemoryTransport>(*meeting.arena, inside);
  transport_name = meeting.wire == nullptr ? std::string(inside)
                   : alone_here            ? std::string(meeting.wire->name())
                                           : fmt::format("{}+{}", inside, meeting.wire->name());
  watch = std::make_unique<Watch>(*seat, *meeting.arena, meeting.wire.get());

  std::vector<Executor::Route> routes(static_cast<std::size_t>(size()));
  for (const Rank peer : seat->world.members) {
    const bool here = seat->host_of(peer) == seat->grid.host;
    routes[static_cast<std::size_t>(peer)] = {here ? local.get() : meeting.wire.get(),
                                              here ? seat->local_of(peer) : peer};
  }
  executor = std::make_unique<Executor>(*seat, std::move(routes), std::make_unique<HostStage>(*meeting.arena));

  // A wire may not like to be called from a thread of ours; then the program must ask for one.
  const bool spare_cores = meeting.topology.cores_per_host > meeting.arena->ranks();
  threaded_ = size() > 1 && settings.progress_thread.value_or(spare_cores && meeting.wire == nullptr);
  if (threaded_) progress_thread_ = std::thread([this] { serve(); });
}

Communicator::Impl::~Impl() {
  if (progress_thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_to_do_.notify_all();
    progress_thread_.join();
  }
  if (!queue_.empty())
    fail_all(std::make_exception_ptr(
        Error(Errc::peer_lost, "the communicator was destroyed before the operation ended", rank(), rank())));
  for (const auto& state : pool_) state->owner = nullptr;
  if (meeting.wire != nullptr && failure_ == nullptr) try {
      meeting.wire->flush(Deadline::in(std::min(settings.timeout, std::chrono::nanoseconds(std::chrono::seconds(10)))));
    } catch (const std::exception& error) {
      log_warning(rank(), "leaving a communicator: {}", error.what());
    }
}

// ---- checking and planning ----

void Communicator::Impl::check_arguments(const Call& call) const {
  const auto p = static_cast<std::size_t>(size());
  const auto self = static_cast<std::size_t>(rank());
  const auto bad = [&](const std::string& why) { refuse(call, rank(), why); };
  const auto whole_bytes = [&](std::size_t count, DataType type) {
    if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / size_of(type))
      bad(fmt::format("{} elements of {} overflow the address space", count, to_string(type)));
    return count * size_of(type);
  };
  const auto not_null = [&](const void* data, std::size_t count, const char* which) {
    if (data == nullptr && count > 0) bad(fmt::format("{} is null with {} elements", which, count));
  };
  if (call.collective == Collective::barrier) return;

  const bool at_root = rank() == call.root;
  if (call.collective == Collective::broadcast || call.collective == Collective::reduce)
    if (call.root < 0 || call.root >= size())
      bad(fmt::format("root {} is not a rank of 0 to {}", call.root, size() - 1));
  const bool has_input = call.collective != Collective::broadcast || at_root;
  const bool has_output = call.collective != Collective::reduce || at_root;
  const std::size_t in_bytes = has_input ? whole_bytes(call.input.count, call.input.type) : 0;
  const std::size_t out_bytes = has_output ? whole_bytes(call.output.count, call.output.type) : 0;
  if (has_input) not_null(call.input.data, call.input.count, "input");
  if (has_output) not_null(call.output.data, call.output.count, "output");
  if (has_input && has_output && call.input.type != call.output.type)
    bad(fmt::format("input is {}, output is {}", to_string(call.input.type), to_string(call.output.type)));
  if (reduces(call.collective)) {
    if (!supports(call.input.type, call.op))
      bad(fmt::format("{} has no {}", to_string(call.input.type), to_string(call.op.kind())));
    if (call.op.kind() == ReduceOp::Kind::user && (call.op.user_op() == nullptr || !call.op.user_op()->combine))
      bad("the user op has no function");
  }

  // Shapes: what one side must hold, and where the other lies in it when the call is in place.
  std::size_t first = 0;  // element of the larger buffer at which this rank's part begins
  const auto parts_of = [&](const ConstBuffer& whole, const ConstBuffer& mine, const char* whole_name,
                            const char* mine_name) {
    if (!call.has_counts) {
      if (mine.count > std::numeric_limits<std::size_t>::max() / p) bad("the counts of all ranks overflow");
      if (whole.count != mine.count * p)
        bad(fmt::format("{} has {} elements, {} has {}: it must be {} ranks times as many", mine_name, mine.count,
                        whole_name, whole.count, p));
      first = self * mine.count;
      return;
    }
    if (call.counts.size() != p) bad(fmt::format("{} counts for {} ranks", call.counts.size(), p));
    std::size_t total = 0;
    for (std::size_t r = 0; r < p; ++r) {
      if (call.counts[r] > std::numeric_limits<std::size_t>::max() - total) bad("the counts overflow");
      if (r == self) first = total;
      total += call.counts[r];
    }
    if (mine.count != call.counts[self])
      bad(fmt::format("{} has {} elements, counts[{}] is {}", mine_name, mine.count, rank(), call.counts[self]));
    if (whole.count != total)
      bad(fmt::format("{} has {} elements, the counts add up to {}", whole_name, whole.count, total));
  };
  auto in_place = reinterpret_cast<std::uintptr_t>(call.input.data);  // where the output must begin to be in place
  switch (call.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      if (has_output && call.input.count != call.output.count)
        bad(fmt::format("input has {} elements, output has {}", call.input.count, call.output.count));
      break;
    case Collective::broadcast:
      if (at_root && call.input.count != call.output.count)
        bad(fmt::format("input has {} elements, output has {}", call.input.count, call.output.count));
      break;
    case Collective::reduce_scatter:
      parts_of(call.input, call.output, "input", "output");
      in_place += first * size_of(call.input.type);
      break;
    case Collective::all_gather:
      parts_of(call.output, call.input, "output", "input");
      in_place -= first * size_of(call.input.type);
      break;
    case Collective::barrier: break;
  }
  if (has_input && has_output && reinterpret_cast<std::uintptr_t>(call.output.data) != in_place &&
      overlap(call.input.data, in_bytes, call.output.data, out_bytes))
    bad("input and output overlap without being in place");
}

Signature Communicator::Impl::sign(const Call& call, const Options& options) const {
  Signature signature;
  signature.collective = call.collective;
  signature.deterministic = options.deterministic.value_or(settings.deterministic);
  const std::string_view backend = options.backend.empty() ? std::string_view(settings.backend) : options.backend;
  if (backend != "auto") {
    static const std::vector<std::string_view> known = backend_names();
    const auto found = std::find(known.begin(), known.end(), backend);
    if (found == known.end())
      refuse(call, rank(), fmt::format("unknown backend \"{}\"; known: {}", backend, fmt::join(known, ", ")));
    signature.backend = static_cast<std::uint8_t>(found - known.begin());
  }
  if (call.collective == Collective::barrier) return signature;
  const bool from_input = call.collective == Collective::reduce_scatter || call.collective == Collective::reduce;
  signature.count = from_input ? call.input.count : call.output.count;
  signature.type = from_input ? call.input.type : call.output.type;
  signature.root = call.root;
  if (reduces(call.collective)) {
    signature.op = call.op.kind();
    if (call.op.kind() == ReduceOp::Kind::pre_scaled_sum)
      signature.op_detail = std::bit_cast<std::uint64_t>(call.op.factor());
    if (const UserOp* user = call.op.user_op())
      signature.op_detail = hash_bytes(user->name.data(), user->name.size(), user->commutative ? 1 : 2);
  }
  if (call.has_counts) {
    signature.has_counts = true;
    signature.counts_hash = hash_bytes(call.counts.data(), call.counts.size_bytes());
  }
  return signature;
}

std::shared_ptr<const PlannedCall> Communicator::Impl::plan(const Call& call, const Options& options) {
  const Signature signature = sign(call, options);
  const auto same = [&](const PlannedCall& planned) {
    return planned.signature == signature && std::ranges::equal(planned.request.counts, call.counts);
  };
  if (last_ != nullptr && same(*last_)) return last_;
  const std::uint64_t key = make_tag(0, signature);
  if (const auto found = plans_.find(key); found != plans_.end() && same(*found->second)) return last_ = found->second;

  auto planned = std::make_shared<PlannedCall>();
  planned->signature = signature;
  planned->request = {.collective = signature.collective,
                      .count = signature.count,
                      .type = signature.type,
                      .op = call.op,
                      .root = signature.root,
                      .deterministic = signature.deterministic,
                      .backend = backend_names()[signature.backend],
                      .counts = {call.counts.begin(), call.counts.end()}};
  planned->plan = choose_plan(planned->request, meeting.topology, meeting.tuning);
  const Range whole{0, signature.count};
  if (!planned->plan.algorithm->by_part(signature.collective, planned->plan.direct, meeting.topology)) {
    planned->parts = Parts::equal(whole, 1);
  } else if (!call.has_counts) {
    planned->parts = Parts::equal(whole, size());
  } else {
    planned->offsets.resize(call.counts.size() + 1);
    std::inclusive_scan(call.counts.begin(), call.counts.end(), planned->offsets.begin() + 1);
    planned->parts = Parts::listed(planned->offsets.data(), size());
  }
  if (plans_.size() >= kPlansKept) plans_.clear();
  plans_[key] = planned;
  return last_ = planned;
}

// ---- issuing ----

std::unique_lock<std::mutex> Communicator::Impl::guard() {
  return threaded_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
}

std::shared_ptr<Work::State> Communicator::Impl::new_state(const Call& call, const Options& options,
                                                           std::shared_ptr<const PlannedCall> planned) {
  std::shared_ptr<State> state;
  for (auto& pooled : pool_)
    if (pooled.use_count() == 1) {
      state = pooled;
      break;
    }
  if (state == nullptr) state = pool_.emplace_back(std::make_shared<State>());
  state->owner = this;
  state->phase.store(State::Phase::queued, std::memory_order_relaxed);
  state->name.assign(options.name);
  state->timeout = options.timeout.count() != 0 ? options.timeout : settings.timeout;
  state->issued = {};
  state->stall_reported = false;
  state->error = nullptr;

  Job& job = state->job;
  job.plan = &planned->plan;
  job.task = {call.collective, planned->parts, call.root, planned->plan.direct};
  job.op = call.op;
  job.type = planned->signature.type;
  const std::size_t element = size_of(job.type);
  const std::size_t mine = planned->parts.size() > 1 ? planned->parts.full(rank()).first : 0;
  const bool part_in = call.collective == Collective::all_gather,
             part_out = call.collective == Collective::reduce_scatter;
  job.input = from_element<const std::byte>(call.input.data, part_in ? mine : 0, element);
  job.output = from_element<std::byte>(call.output.data, part_out ? mine : 0, element);
  state->call = std::move(planned);
  return state;
}

void Communicator::Impl::begin(State& state) {
  if (meeting.wire != nullptr) watch->listen();
  watch->check();
  state.sequence = ++sequence_;
  state.phase.store(State::Phase::running, std::memory_order_relaxed);
  state.job.tag = make_tag(state.sequence, state.call->signature);
  watch->arrive({state.sequence, state.call->signature, state.name});
  executor->start(state.job);
}

std::shared_ptr<Work::State> Communicator::Impl::issue(const Call& call, const Options& options) {
  check_arguments(call);
  auto lock = guard();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  auto state = new_state(call, options, plan(call, options));
  queue_.push(state);
  advance_queue();
  if (threaded_ && !state->finished()) work_to_do_.notify_one();
  return state;
}

void Communicator::Impl::run(const Call& call, const Options& options) {
  check_arguments(call);
  auto lock = guard();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  const auto state = new_state(call, options, plan(call, options));
  queue_.push(state);
  if (!advance_queue() && !state->finished()) drive(*state, Deadline::never(), lock);
  state->call = nullptr;
  if (state->error != nullptr) std::rethrow_exception(state->error);
}

// ---- moving on ----

bool Communicator::Impl::advance_queue() noexcept {
  while (!queue_.empty()) {
    State& head = queue_.front();
    try {
      if (head.phase.load(std::memory_order_relaxed) == State::Phase::queued) begin(head);
      if (!executor->advance()) return false;
      watch->complete(head.sequence);
      head.phase.store(State::Phase::done, std::memory_order_release);
      queue_.pop();
    } catch (const TagMismatch& mismatch) {
      try {
        watch->raise_mismatch({head.sequence, head.call->signature, head.name}, mismatch.peer);
      } catch (...) {
        fail_all(std::current_exception());
      }
    } catch (const Error& error) {
      // What a transport reports is this communicator's failure too, and the other ranks should hear of it.
      watch->raise(error.code(), error.peer(), Watch::operation({head.sequence, head.call->signature, head.name}),
                   error.what());
      fail_all(std::current_exception());
    } catch (...) {
      fail_all(std::current_exception());
    }
  }
  return true;
}

void Communicator::Impl::fail_all(std::exception_ptr error) noexcept {
  failure_ = error;
  queue_.for_each([&](State& state) {
    state.error = error;
    state.phase.store(State::Phase::failed, std::memory_order_release);
  });
  queue_.clear();
}

/// The slow path of every wait: failures, lost peers, the stall report, the deadline.
void Communicator::Impl::look(State& state) {
  const Watch::Call call{state.sequence, state.call->signature, state.name};
  watch->look(call);
  const auto now = Clock::now();
  if (state.issued == Clock::time_point{}) state.issued = now;
  const auto waited = now - state.issued;
  if (waited >= state.timeout) watch->raise_timeout(call, waited);
  if (!state.stall_reported && waited >= settings.stall_report) {
    state.stall_reported = true;
    log_warning(rank(), "{} has waited for {:.0f} s: {}", Watch::operation(call),
                std::chrono::duration<double>(waited).count(), watch->missing_text(call));
  }
}

void Communicator::Impl::drive(State& state, Deadline until, std::unique_lock<std::mutex>& lock) {
  Waiter waiter(meeting.crowded);
  std::uint64_t moves = executor->moves();
  while (!state.finished()) {
    if (lock.owns_lock()) {  // let the other thread have a turn
      lock.unlock();
      lock.lock();
      if (state.finished()) return;
    }
    if (waiter.pause()) {
      try {
        look(queue_.front());
      } catch (...) {
        fail_all(std::current_exception());
        return;
      }
      if (until.passed()) return;
    }
    advance_queue();
    if (executor->moves() != moves) {
      moves = executor->moves();
      waiter.progressed();
    }
  }
}

bool Communicator::Impl::wait(State& state, Deadline until) {
  auto lock = guard();
  if (!state.finished()) advance_queue();
  if (!state.finished()) drive(state, until, lock);
  return state.finished();
}

bool Communicator::Impl::test(State& state) {
  if (state.finished()) return true;
  progress();
  return state.finished();
}

void Communicator::Impl::progress() {
  auto lock = guard();
  if (advance_queue()) return;
  const auto now = Clock::now();
  if (now - looked_ < std::chrono::milliseconds(1)) return;
  looked_ = now;
  try {
    look(queue_.front());
  } catch (...) {
    fail_all(std::current_exception());
  }
}

/// The progress thread: moves operations on while the program computes.
void Communicator::Impl::serve() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    work_to_do_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    Waiter waiter(meeting.crowded);
    std::uint64_t moves = executor->moves();
    while (!stop_ && !advance_queue()) {
      if (executor->moves() != std::exchange(moves, executor->moves())) waiter.progressed();
      lock.unlock();
      const bool due = waiter.pause();
      lock.lock();
      if (!due || queue_.empty()) continue;
      try {
        look(queue_.front());
      } catch (...) {
        fail_all(std::current_exception());
      }
    }
  }
}

// ---- Work ----

Work::Work() noexcept = default;
Work::Work(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    Work old(std::move(*this));  // waits for what it held
    state_ = std::move(other.state_);
  }
  return *this;
}

Work::~Work() {
  if (state_ == nullptr) return;
  try {
    wait();
  } catch (const std::exception&) {  // whoever wants the error calls wait()
  }
}

bool Work::wait_until(Deadline until) {
  if (state_ == nullptr) return true;
  for (Work& member : state_->members)
    if (!member.wait_until(until)) return false;
  if (!state_->finished() && state_->owner != nullptr && !state_->owner->wait(*state_, until)) return false;
  return test();
}

bool Work::wait_for(std::chrono::nanoseconds timeout) { return wait_until(Deadline::in(timeout)); }
void Work::wait() { wait_until(Deadline::never()); }

bool Work::test() {
  if (state_ == nullptr) return true;
  for (Work& member : state_->members)
    if (!member.test()) return false;
  if (!state_->finished() && state_->owner != nullptr && !state_->owner->test(*state_)) return false;
  const std::shared_ptr<State> state = std::move(state_);  // finished: nothing left to wait for
  if (state->finish) std::exchange(state->finish, nullptr)();
  state->members.clear();
  state->call = nullptr;
  if (state->error != nullptr) std::rethrow_exception(state->error);
  return true;
}

// ---- the public functions ----

Communicator::Communicator(Bootstrap& bootstrap, const CommunicatorOptions& options)
    : impl_(std::make_unique<Impl>(bootstrap, options)) {}
Communicator::Communicator(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator Communicator::from_environment(const CommunicatorOptions& options) {
  return Communicator(*bootstrap_from_environment(settle(options).timeout), options);
}

Rank Communicator::rank() const noexcept { return impl_->rank(); }
int Communicator::size() const noexcept { return impl_->size(); }
const Topology& Communicator::topology() const noexcept { return impl_->meeting.topology; }
const Tuning& Communicator::tuning() const noexcept { return impl_->meeting.tuning; }
std::string_view Communicator::transport() const noexcept { return impl_->transport_name; }
std::uint64_t Communicator::bytes_sent() const noexcept { return impl_->executor->bytes_sent(); }

void Communicator::all_reduce(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->run({.collective = Collective::all_reduce, .input = input, .output = output, .op = op}, options);
}
void Communicator::all_reduce(Buffer data, ReduceOp op, const Options& options) { all_reduce(data, data, op, options); }
Work Communicator::all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  return Work(
      impl_->issue({.collective = Collective::all_reduce, .input = input, .output = output, .op = op}, options));
}

void Communicator::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->run({.collective = Collective::reduce_scatter, .input = input, .output = output, .op = op}, options);
}
Work Communicator::reduce_scatter_async(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  return Work(
      impl_->issue({.collective = Collective::reduce_scatter, .input = input, .output = output, .op = op}, options));
}
void Communicator::reduce_scatter_v(ConstBuffer input, Buffer output, std::span<const std::size_t> counts, ReduceOp op,
                                    const Options& options) {
  impl_->run({.collective = Collective::reduce_scatter,
              .input = input,
              .output = output,
              .op = op,
              .counts = counts,
              .has_counts = true},
             options);
}
Work Communicator::reduce_scatter_v_async(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                          ReduceOp op, const Options& options) {
  return Work(impl_->issue({.collective = Collective::reduce_scatter,
                            .input = input,
                            .output = output,
                            .op = op,
                            .counts = counts,
                            .has_counts = true},
                           options));
}

void Communicator::all_gather(ConstBuffer input, Buffer output, const Options& options) {
  impl_->run({.collective = Collective::all_gather, .input = input, .output = output}, options);
}
Work Communicator::all_gather_async(ConstBuffer input, Buffer output, const Options& options) {
  return Work(impl_->issue({.collective = Collective::all_gather, .input = input, .output = output}, options));
}
void Communicator::all_gather_v(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                const Options& options) {
  impl_->run(
      {.collective = Collective::all_gather, .input = input, .output = output, .counts = counts, .has_counts = true},
      options);
}
Work Communicator::all_gather_v_async(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                      const Options& options) {
  return Work(impl_->issue(
      {.collective = Collective::all_gather, .input = input, .output = output, .counts = counts, .has_counts = true},
      options));
}

void Communicator::broadcast(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  impl_->run({.collective = Collective::broadcast, .input = input, .output = output, .root = root}, options);
}
void Communicator::broadcast(Buffer data, Rank root, const Options& options) { broadcast(data, data, root, options); }
Work Communicator::broadcast_async(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  return Work(
      impl_->issue({.collective = Collective::broadcast, .input = input, .output = output, .root = root}, options));
}
Work Communicator::broadcast_async(Buffer data, Rank root, const Options& options) {
  return broadcast_async(data, data, root, options);
}

void Communicator::reduce(ConstBuffer input, Buffer output, ReduceOp op, Rank root, const Options& options) {
  impl_->run({.collective = Collective::reduce, .input = input, .output = output, .op = op, .root = root}, options);
}
Work Communicator::reduce_async(ConstBuffer input, Buffer output, ReduceOp op, Rank root, const Options& options) {
  return Work(impl_->issue({.collective = Collective::reduce, .input = input, .output = output, .op = op, .root = root},
                           options));
}

void Communicator::barrier(const Options& options) { impl_->run({.collective = Collective::barrier}, options); }
Work Communicator::barrier_async(const Options& options) {
  return Work(impl_->issue({.collective = Collective::barrier}, options));
}

Group Communicator::group() { return Group(*this); }

void Communicator::abort(std::string_view reason) noexcept {
  impl_->watch->raise(Errc::aborted, rank(), "abort", fmt::format("aborted by rank {}: {}", rank(), reason));
}

void Communicator::progress() { impl_->progress(); }

Plan Communicator::plan(Collective collective, std::size_t count, DataType type, ReduceOp op,
                        const Options& options) const {
  const Call call{
      .collective = collective, .input = {nullptr, count, type}, .output = {nullptr, count, type}, .op = op};
  return impl_->plan(call, options)->plan;
}

std::string Communicator::explain(Collective collective, std::size_t count, DataType type, ReduceOp op,
                                  const Options& options) const {
  const Call call{
      .collective = collective, .input = {nullptr, count, type}, .output = {nullptr, count, type}, .op = op};
  const auto planned = impl_->plan(call, options);
  return collectives::explain(planned->plan, planned->request, topology());
}

// ---- split ----

namespace {

/// The ranks of one color meet through the communicator they are split from. Every rank of the parent takes part in
/// every exchange, whatever its color, so exchanges of different colors are one collective of the parent.
class SplitBootstrap final : public Bootstrap {
 public:
  SplitBootstrap(Communicator& parent, WireFactory wires, std::vector<Rank> members)
      : parent_(parent), wires_(std::move(wires)), members_(std::move(members)) {}

  std::string_view name() const noexcept override { return "split"; }
  Rank rank() const noexcept override {
    return static_cast<Rank>(std::find(members_.begin(), members_.end(), parent_.rank()) - members_.begin());
  }
  int size() const noexcept override { return static_cast<int>(members_.size()); }

  std::vector<std::string> all_gather(std::string_view mine, Deadline) override {
    --exchanges_left_;
    const auto all = exchange(parent_, mine);
    std::vector<std::string> ours;
    for (const Rank member : members_) ours.push_back(all[static_cast<std::size_t>(member)]);
    return ours;
  }

  WireFactory wire_factory() override {
    if (!wires_.make) return {};
    // Members of the new communicator are ranks of the parent, whose own ranks `make` counts in.
    return {[make = wires_.make, members = members_](const std::vector<Rank>& ranks, std::size_t context,
                                                     std::size_t frame_bytes) {
              std::vector<Rank> theirs;
              for (const Rank rank : ranks) theirs.push_back(members[static_cast<std::size_t>(rank)]);
              return make(theirs, context, frame_bytes);
            },
            wires_.next_context};
  }

  /// Takes part in the exchanges that other colors still make.
  void keep_company() {
    while (exchanges_left_ > 0) all_gather({}, Deadline::never());
  }

  static std::vector<std::string> exchange(Communicator& comm, std::string_view mine) {
    const auto p = static_cast<std::size_t>(comm.size());
    std::vector<std::size_t> lengths(p);
    const std::size_t length = mine.size();
    comm.all_gather(std::span(&length, 1), lengths);
    std::string bytes(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
    comm.all_gather_v({mine.data(), length, DataType::u8}, {bytes.data(), bytes.size(), DataType::u8}, lengths);
    std::vector<std::string> all;
    std::size_t at = 0;
    for (std::size_t r = 0; r < p; at += lengths[r++]) all.push_back(bytes.substr(at, lengths[r]));
    return all;
  }

 private:
  Communicator& parent_;
  WireFactory wires_;
  std::vector<Rank> members_;
  int exchanges_left_ = kMeetExchanges;
};

}  // namespace

std::optional<Communicator> Communicator::split(int color, int key, const CommunicatorOptions& options) {
  const int mine[] = {color, key};
  std::vector<int> all(2 * static_cast<std::size_t>(size()));
  all_gather(mine, all);
  std::vector<Rank> members;
  for (Rank r = 0; r < size(); ++r)
    if (all[2 * static_cast<std::size_t>(r)] == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](Rank a, Rank b) {
    return all[2 * static_cast<std::size_t>(a) + 1] < all[2 * static_cast<std::size_t>(b) + 1];
  });
  CommunicatorOptions inherited = options;
  if (inherited.backend.empty()) inherited.backend = impl_->settings.backend;
  if (inherited.timeout.count() == 0) inherited.timeout = impl_->settings.timeout;
  if (!inherited.deterministic) inherited.deterministic = impl_->settings.deterministic;
  if (!inherited.progress_thread) inherited.progress_thread = impl_->settings.progress_thread;
  if (inherited.transport.empty()) inherited.transport = impl_->settings.transport;
  SplitBootstrap bootstrap(*this, impl_->wires, std::move(members));
  if (color < 0) {
    bootstrap.keep_company();
    return std::nullopt;
  }
  try {
    return Communicator(bootstrap, inherited);
  } catch (const Error&) {
    bootstrap.keep_company();
    throw;
  }
}

}  // namespace collectives
