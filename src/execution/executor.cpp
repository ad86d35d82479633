// Implementation of the executor: the list of Steps, the order of Steps, the performance of one
// Step, and coded messages.
//
// A frame is memory of a transport for one message. A round performs all Steps on one segment of each part of the
// vector. The wire is the transport between hosts; it may send from the caller's memory while the executor continues.
#include "execution/executor.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <utility>

#include "reduction/reduction.hpp"

namespace collectives {
namespace {

/// Passes Steps on. Turns a Step that reduces into a plain send if the only term is this rank's own value.
class OwnValues final : public StepSink {
 public:
  OwnValues(StepSink& steps, Rank self) : steps_(steps), self_(self) {}
  void operator()(const Step& step) override {
    if (!only_hands_on(step) || step.from[0] != self_) return steps_(step);
    Step sent = step;
    sent.reduce = false;
    sent.from = {};
    steps_(sent);
  }

 private:
  StepSink& steps_;
  Rank self_;
};

/// Minimum number of f32 elements that are coded and added at a time, rounded up to blocks of the codec. They take 4
/// KiB, so that tiles of several sources fit in the first-level cache.
constexpr std::size_t kTile = 1024;

}  // namespace

// ---- the list of Steps ----

void Executor::StepList::operator()(const Step& step) {
  steps_.push_back(step);
  Step& mine = steps_.back();
  mine.from = store(step.from);
  mine.to = store(step.to);
  mine.owners = store(step.owners);
}

void Executor::StepList::clear() noexcept {
  steps_.clear();
  for (auto& block : blocks_) block.clear();
  block_ = 0;
}

Peers Executor::StepList::store(Peers peers) {
  if (peers.empty()) return {};
  while (block_ < blocks_.size() && blocks_[block_].capacity() - blocks_[block_].size() < peers.size()) ++block_;
  if (block_ == blocks_.size()) {
    blocks_.emplace_back();
    blocks_.back().reserve(std::max(kBlock, peers.size()));
  }
  std::vector<Rank>& block = blocks_[block_];
  const std::size_t first = block.size();
  block.insert(block.end(), peers.begin(), peers.end());
  return {block.data() + first, peers.size()};
}

// ---- the executor ----

Executor::Executor(const RankView& view, std::vector<Route> routes, HostCollectives host_collectives, Transport* wire,
                   ValueEngine* engine)
    : view_(view),
      routes_(std::move(routes)),
      host_collectives_(std::move(host_collectives)),
      wire_(wire),
      engine_(engine),
      sources_(view.world.members.size()) {}

std::uint64_t Executor::moves() const noexcept {
  std::uint64_t moves = moves_;
  for (const auto& collective : host_collectives_)
    if (collective != nullptr) moves += collective->moves();
  return moves;
}

std::uint64_t Executor::bytes_sent() const noexcept {
  std::uint64_t bytes = bytes_sent_;
  for (const auto& collective : host_collectives_)
    if (collective != nullptr) bytes += collective->bytes_shown();
  return bytes;
}

void Executor::start_steps() {
  const Job& job = *job_;
  coding_ = {size_of(job.type), job.codec};
  if (job.codec != nullptr) {
    const std::size_t block = std::max<std::size_t>(1, job.codec->block());
    tile_ = (kTile + block - 1) / block * block;
    encoded_.resize(job.codec->encoded_bytes(tile_));
    aligned_.resize(tile_);
  }
  worked_ = {};
  work_at_ = nullptr;
  from_ready_ = to_ready_ = 0;
  host_begun_ = receive_target_known_ = in_engine_ = false;
  schedule_.start(job.plan->rounds, job.plan->issue_interval,
                  [this](std::size_t round, StepList& steps) { emit_round(round, steps); });
}

void Executor::emit_round(std::size_t round, StepList& steps) {
  RoundArgs args = job_->args;
  if (job_->plan->rounds > 1) {
    args.parts = job_->args.parts.round(job_->plan->segment, round);
    args.incoming = job_->args.incoming.round(job_->plan->segment, round);
  }
  const Algorithm& algorithm = *job_->plan->algorithm;
  if (coding_.codec != nullptr || !keeps_one(job_->op, 0)) return algorithm.emit(view_, args, steps);
  OwnValues own_values(steps, view_.world.self);
  algorithm.emit(view_, args, own_values);
}

void Executor::next_step() {
  from_ready_ = to_ready_ = 0;
  host_begun_ = receive_target_known_ = false;
  schedule_.progress([this](std::size_t round, StepList& steps) { emit_round(round, steps); });
}

bool Executor::progress_steps() {
  if (wire_ != nullptr) wire_->progress();
  while (const Step* step = schedule_.current()) {
    if (job_->input_stream != nullptr && !input_ready()) return false;
    if (trace_ != nullptr) trace(*step);
    if (step->kind != Step::Kind::exchange) {
      waits_for_wire_ = false;
      if (!std::exchange(host_begun_, true)) begin_host(*step);
      if (!(engine_ == nullptr ? progress_host(step->subgroup) : engine_->progress_host_step())) return false;
    } else if (step->range.count > 0 || job_->args.collective == Collective::barrier) {
      // Empty ranges are not sent. Only the messages of a barrier carry no data.
      if (!performed(*step)) return false;
    }
    next_step();
    ++moves_;
    if (job_->input_stream != nullptr) job_->input_stream->done(schedule_.finished());
  }
  return sends_drained();
}

bool Executor::input_ready() {
  waits_for_input_ = !job_->input_stream->ready(schedule_.round());
  if (waits_for_input_) waits_for_wire_ = false;
  return !waits_for_input_;
}

/// Records the phase of `step`. One message over the wire is enough to count the Step as `between_hosts`.
void Executor::trace(const Step& step) {
  const auto over_wire = [this](Rank peer) { return this->over_wire(peer); };
  trace_->phase(step.kind != Step::Kind::exchange ? Trace::Phase::host_collective
                : wire_ != nullptr &&
                        (std::ranges::any_of(step.from, over_wire) || std::ranges::any_of(step.to, over_wire))
                    ? Trace::Phase::between_hosts
                    : Trace::Phase::messages);
}

/// Returns whether the wire has sent everything. The caller may then reuse its memory. Peers receive their data without
/// further calls on this rank.
bool Executor::sends_drained() {
  if (wire_ == nullptr || !wire_->sending()) return true;
  wire_->progress();
  waits_for_wire_ = true;
  return !wire_->sending();
}

std::byte* Executor::receive_target(const Step& step) {
  if (step.reduce || step.destination != Place::output || coding_.codec != nullptr) return nullptr;
  std::byte* place = address(step.destination, step.range);
  return sent_from(place, step.range.count * coding_.element) ? nullptr : place;
}

bool Executor::sent_from(const std::byte* place, std::size_t bytes) const {
  return wire_ != nullptr && wire_->lent(place, bytes);
}

bool Executor::ready(const Step& step) {
  const auto waits_for = [this](Rank peer) {
    waits_for_wire_ = over_wire(peer);
    return false;
  };
  const std::size_t bytes = coding_.bytes(step.range.count);
  if (!std::exchange(receive_target_known_, true)) receive_target_ = receive_target(step);
  for (; from_ready_ < step.from.size(); ++from_ready_) {
    const Rank peer = step.from[from_ready_];
    if (me(peer)) continue;
    const Route& route = routes_[static_cast<std::size_t>(peer)];
    if (route.transport->receive_into(route.address, receive_target_, bytes) == nullptr) return waits_for(peer);
  }
  for (; to_ready_ < step.to.size(); ++to_ready_) {
    const Rank peer = step.to[to_ready_];
    if (me(peer)) continue;
    const Route& route = routes_[static_cast<std::size_t>(peer)];
    if (!route.transport->has_frame(route.address)) return waits_for(peer);
  }
  // Wait until nothing is sent from the destination any more. The receives stand before this check. Peers may wait
  // here, too, until this rank has received their messages.
  const bool stays =
      !step.reduce && step.from.empty() && address(step.source, step.range) == address(step.destination, step.range);
  // Coded messages are never sent from the caller's memory.
  if (step.destination == Place::output && receive_target_ == nullptr && !stays && coding_.codec == nullptr &&
      sent_from(address(step.destination, step.range), bytes)) {
    waits_for_wire_ = true;  // progress() lets the wire send
    return false;
  }
  return true;
}

const Message& Executor::taken(Rank from, std::size_t bytes) {
  const Route& route = routes_[static_cast<std::size_t>(from)];
  const Message& message = *route.transport->receive(route.address);
  if (message.tag != job_->tag || message.bytes != bytes) throw TagMismatch{from};
  return message;
}

/// Returns `base` moved by whole elements. Computes with integers, because element 0 of the vector may lie outside of
/// the buffer.
static std::byte* moved(const std::byte* base, std::size_t forward_bytes, std::size_t back_bytes) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) + forward_bytes - back_bytes);
}

std::byte* Executor::address(Place place, Range range) {
  switch (place) {
    case Place::nowhere: return nullptr;
    case Place::input: return moved(job_->input, range.first * coding_.element, 0);  // never written
    case Place::output: return moved(job_->output, range.first * coding_.element, 0);
    case Place::work: return moved(work_at_, range.first * coding_.element, worked_.first * coding_.element);
  }
  return nullptr;
}

/// Replaces the current partial result by one of `range`. Keeps it if it contains `range`.
void Executor::keep_as_work(Range range) {
  if (range.first >= worked_.first && range.first + range.count <= worked_.first + worked_.count) return;
  worked_ = range;
  const std::size_t bytes = range.count * coding_.element;
  if (engine_ == nullptr && work_.size() < bytes) work_.resize(bytes);
  work_at_ = engine_ == nullptr ? work_.data() : engine_->work(bytes);
}

/// Performs `step`. Returns false if the step cannot begin yet, or if the engine has not finished it.
bool Executor::performed(const Step& step) {
  if (engine_ == nullptr) {
    if (!ready(step)) return false;
    perform(step);
    return true;
  }
  if (!in_engine_) {
    if (!ready(step) || !engine_->begin()) return false;
    in_engine_ = true;
    ++moves_;
    made_ = make(step);
    fill_frames(step, made_);
    engine_->end();
  }
  if (!engine_->done()) return false;
  in_engine_ = false;
  hand_on(step, made_.value, made_.lent);
  return true;
}

void Executor::perform(const Step& step) {
  if (coding_.codec != nullptr) {
    if (step.destination == Place::work) keep_as_work(step.range);
    if (trace_ != nullptr) trace_->phase(Trace::Phase::coding);
    return perform_coded(step);
  }
  const Made made = make(step);
  hand_on(step, made.value, made.lent);
}

Executor::Made Executor::make(const Step& step) {
  const std::size_t bytes = step.range.count * coding_.element;
  if (step.destination == Place::work) keep_as_work(step.range);
  std::byte* destination = address(step.destination, step.range);
  const std::byte* value = nullptr;
  if (step.reduce) {
    // The result is written into its destination. Without one, it is written into the first outgoing frame.
    std::byte* made = destination != nullptr ? destination : first_frame(step);
    std::size_t terms = 0;
    for (const Rank peer : step.from)
      sources_[terms++] = me(peer) ? Source{address(step.source, step.range), step.source == Place::input}
                                   : Source{taken(peer, bytes).data, step.unreduced};
    const std::span<const Source> sources(sources_.data(), terms);
    const int finish_ranks = step.finish ? view_.world.size() : 0;
    if (engine_ == nullptr)
      fold(job_->op, job_->type, sources, made, step.range.count, finish_ranks);
    else
      engine_->fold(job_->op, job_->type, sources, made, step.range.count, finish_ranks);
    value = made;
  } else {
    value = step.from.empty() ? address(step.source, step.range) : taken(step.from[0], bytes).data;
    if (destination != nullptr && destination != value && bytes > 0) copy_value(destination, value, bytes);
  }
  // Peers may read the caller's buffers in place, because ready() delays Steps that would overwrite memory being sent.
  const std::byte* lent = step.destination == Place::output                                 ? destination
                          : !step.reduce && step.from.empty() && step.source != Place::work ? value
                                                                                            : nullptr;
  return {value, lent};
}

void Executor::copy_value(std::byte* to, const std::byte* from, std::size_t bytes) {
  engine_ == nullptr ? void(std::memcpy(to, from, bytes)) : engine_->copy(to, from, bytes);
}

/// Copies the value into the outgoing frames. Used only with an engine, because hand_on() copies without one.
void Executor::fill_frames(const Step& step, const Made& made) {
  const std::size_t bytes = step.range.count * coding_.element;
  for (const Rank peer : step.to) {
    if (me(peer) || lends_to(peer, made.lent)) continue;
    const Route& route = routes_[static_cast<std::size_t>(peer)];
    if (std::byte* const frame = route.transport->acquire_frame(route.address); frame != made.value && bytes > 0)
      engine_->copy(frame, made.value, bytes);
  }
}

std::byte* Executor::first_frame(const Step& step) {
  for (const Rank peer : step.to)
    if (const Route& route = routes_[static_cast<std::size_t>(peer)]; !me(peer))
      return route.transport->acquire_frame(route.address);
  return nullptr;
}

void Executor::hand_on(const Step& step, const std::byte* value, const std::byte* lent) {
  const std::size_t bytes = coding_.bytes(step.range.count);
  for (const Rank peer : step.to) {
    if (me(peer)) continue;
    const Route& route = routes_[static_cast<std::size_t>(peer)];
    assert(bytes <= route.transport->frame_bytes());
    if (lends_to(peer, lent)) {
      route.transport->send_from(route.address, job_->tag, lent, bytes);
    } else {
      std::byte* frame = route.transport->acquire_frame(route.address);
      if (engine_ == nullptr && frame != value && bytes > 0) std::memcpy(frame, value, bytes);
      route.transport->send(route.address, job_->tag, bytes);
    }
    bytes_sent_ += bytes;
    if (over_wire(peer)) bytes_to_other_hosts_ += bytes;
  }
  for (const Rank peer : step.from) {
    if (me(peer)) continue;
    const Route& route = routes_[static_cast<std::size_t>(peer)];
    route.transport->release(route.address);
  }
}

// Coded messages.
//
// A codec has a fixed rate and no state. It is applied where a value enters or leaves a frame. Algorithms know only
// that their messages are coded. Partial sums may not travel, because each hop would round them again. Contributions
// therefore reach the owner of their part unsummed (PartialSums::intra_host). Contributions of one host are added
// inside it before, in f32. That sum is not rounded.
//
// A rank keeps sent values as its peers will see them: encoded and decoded. Its part of the result may be copied and
// sent in separate Steps. Each of them rounds it in the same way. Received messages are passed on without being coded
// again. A broadcast along several rails codes a value twice. It stays equal, because every codec fulfills
// encode(decode(wire)) == wire. The proofs check that values are rounded at most twice, and equally on all ranks.
//
// Sums are computed in tiles. Decoded values are then still in the first-level cache when they are added. A codec
// therefore needs no loop of its own for adding.
//
// Price: p - 1 messages per rank instead of two neighbours. Recursive halving and doubling cannot be used.

void Executor::perform_coded(const Step& step) {
  const auto begun = std::chrono::steady_clock::now();
  std::byte* const destination = address(step.destination, step.range);
  std::byte* const frame = first_frame(step);
  const std::byte* value = frame;
  if (step.reduce) {
    add_coded(step, destination, frame);
  } else if (step.from.empty()) {
    std::byte* const source = address(step.source, step.range);
    round_coded(source,
                destination != nullptr         ? destination
                : step.source == Place::output ? source
                                               : nullptr,
                frame, step.range.count);
  } else {
    value = taken(step.from[0], coding_.bytes(step.range.count)).data;
    if (destination != nullptr) decode(value, destination, step.range.count);
  }
  coded_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const std::uint64_t sent = bytes_sent_;
  hand_on(step, value, nullptr);
  coded_.sent_bytes += bytes_sent_ - sent;
  coded_.raw_bytes += (bytes_sent_ - sent) / std::max<std::size_t>(1, coding_.bytes(step.range.count)) *
                      step.range.count * coding_.element;
}

template <class Visit>
void Executor::for_each_tile(std::size_t count, Visit&& visit) const {
  for (std::size_t first = 0; first < count; first += tile_) visit(first, std::min(tile_, count - first));
}

/// Encodes `values` into `wire`. A codec requires aligned values, so unaligned ones pass through `aligned_`.
void Executor::encode(const std::byte* values, std::size_t count, std::byte* wire) {
  if (reinterpret_cast<std::uintptr_t>(values) % alignof(float) == 0)
    return job_->codec->encode({reinterpret_cast<const float*>(values), count}, wire);
  for_each_tile(count, [&](std::size_t first, std::size_t elements) {
    std::memcpy(aligned_.data(), values + first * sizeof(float), elements * sizeof(float));
    job_->codec->encode({aligned_.data(), elements}, wire + job_->codec->encoded_bytes(first));
  });
}

/// Decodes `wire` into `values`, through `aligned_` if `values` is not aligned.
void Executor::decode(const std::byte* wire, std::byte* values, std::size_t count) {
  if (reinterpret_cast<std::uintptr_t>(values) % alignof(float) == 0)
    return job_->codec->decode(wire, {reinterpret_cast<float*>(values), count});
  for_each_tile(count, [&](std::size_t first, std::size_t elements) {
    job_->codec->decode(wire + job_->codec->encoded_bytes(first), {aligned_.data(), elements});
    std::memcpy(values + first * sizeof(float), aligned_.data(), elements * sizeof(float));
  });
}

/// Encodes `values` into `frame`, and stores the decoded result in `seen`. Either of them may be null.
void Executor::round_coded(const std::byte* values, std::byte* seen, std::byte* frame, std::size_t count) {
  for_each_tile(count, [&](std::size_t first, std::size_t elements) {
    std::byte* const wire = frame != nullptr ? frame + job_->codec->encoded_bytes(first) : encoded_.data();
    encode(values + first * sizeof(float), elements, wire);
    if (seen != nullptr) decode(wire, seen + first * sizeof(float), elements);
  });
}

/// Adds the contributions of `step`. Each of several is rounded once before it is added. That includes this rank's own.
/// The sum then does not depend on which rank adds.
void Executor::add_coded(const Step& step, std::byte* destination, std::byte* frame) {
  const std::size_t bytes = coding_.bytes(step.range.count), terms = step.from.size();
  if (decoded_.size() < (terms + 1) * tile_) decoded_.resize((terms + 1) * tile_);
  for_each_tile(step.range.count, [&](std::size_t first, std::size_t elements) {
    const std::size_t before = first * sizeof(float), coded_before = job_->codec->encoded_bytes(first);
    for (std::size_t i = 0; i < terms; ++i) {
      auto* const space = reinterpret_cast<std::byte*>(decoded_.data() + i * tile_);
      if (!me(step.from[i])) {
        decode(taken(step.from[i], bytes).data + coded_before, space, elements);
        sources_[i] = {space, step.unreduced};
      } else if (terms > 1) {
        round_coded(address(step.source, step.range) + before, space, nullptr, elements);
        sources_[i] = {space, step.source == Place::input};
      } else {
        sources_[i] = {address(step.source, step.range) + before, step.source == Place::input};
      }
    }
    std::byte* const sum =
        destination != nullptr ? destination + before : reinterpret_cast<std::byte*>(decoded_.data() + terms * tile_);
    fold(job_->op, job_->type, {sources_.data(), terms}, sum, elements, step.finish ? view_.world.size() : 0);
    if (frame != nullptr) round_coded(sum, destination != nullptr ? sum : nullptr, frame + coded_before, elements);
  });
}

void Executor::begin_host(const Step& step) {
  HostOperands& with = host_operands_;
  with = {.type = job_->type,
          .op = job_->op,
          .finish_ranks = step.finish ? view_.world.size() : 0,
          .unreduced = step.source == Place::input,
          .tag = job_->tag};
  with.source = address(step.source, {});
  if (step.destination == Place::work) {
    const int place = view_.index_in(step.subgroup);
    const auto at = static_cast<std::size_t>(place);
    Range mine{};
    if (step.root >= 0 ? step.root == place : at < step.owners.size())
      mine = step.parts[step.root >= 0 ? 0 : step.owners[at]];
    keep_as_work(mine);
    with.destination = moved(work_at_, 0, worked_.first * coding_.element);
  } else {
    with.destination = address(step.destination, {});
  }
  if (engine_ == nullptr) {
    host_collective(step.subgroup).describe(step, job_->type, host_task_);
    return host_collective(step.subgroup).start(host_task_, with);
  }
  assert(step.subgroup == Subgroup::host);
  describe(step, coding_.element, static_cast<int>(view_.grid.here().size()), false, TuningParameters{}, host_task_);
  engine_->begin_host_step(host_task_, with);
}

}  // namespace collectives
