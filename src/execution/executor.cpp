// Implementation of the executor, which performs the work of one rank in a collective call.
//
// An algorithm describes this work as a list of Steps. A Step takes values from a buffer or received messages. It may
// reduce the values, and may store the result or send it. The executor performs the Steps in order. A frame is memory
// of a transport for one message. A Step can run if all its incoming messages have arrived, and the transport has a
// frame for each outgoing message. If a Step cannot run yet, the function progress() returns, and its caller calls it
// again later.
//
// A plan divides the vector into parts, and each part into segments (planning/plan.cpp). In one round, the executor
// performs all Steps on one segment of each part.
//
// The wire is the transport between hosts. It may send a message from the caller's buffer while the executor continues.
// The executor therefore never overwrites memory from which the wire still sends.
#include "execution/executor.hpp"

#include <cstring>
#include <utility>

#include "core/collective.hpp"

namespace collectives {
namespace {

/// Receives the Steps that an algorithm emits, and passes them on to another sink. If a Step reduces only values of
/// this rank, changes the Step so that it does not reduce. The result is the same.
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

}  // namespace

Executor::Executor(const RankView& view, std::vector<Route> routes, HostCollectives host_collectives, Transport* wire,
                   ValueEngine* engine)
    : view_(view),
      host_engine_(view, std::move(host_collectives)),
      engine_(engine),
      messages_(view.world.self, std::move(routes), wire),
      coded_step_(view, messages_, places_),
      sources_(view.world.members.size()) {}

void Executor::start_steps() {
  const Job& job = *job_;
  coding_ = {element_bytes_of(job.type, job.op), job.codec};
  if (job.codec != nullptr) coded_step_.start(job);
  places_.start(job);
  messages_.start(job.tag);
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
  if (coding_.codec != nullptr || !keeps_one(job_->op, job_->type, 0)) return algorithm.emit(view_, args, steps);
  OwnValues own_values(steps, view_.world.self);
  algorithm.emit(view_, args, own_values);
}

void Executor::next_step() {
  messages_.next_step();
  host_begun_ = receive_target_known_ = false;
  schedule_.progress([this](std::size_t round, StepList& steps) { emit_round(round, steps); });
}

bool Executor::progress_steps() {
  messages_.progress();
  while (const Step* step = schedule_.current()) {
    if (job_->input_stream != nullptr && !input_ready()) return false;
    if (trace_ != nullptr) trace(*step);
    if (step->kind != Step::Kind::exchange) {
      messages_.set_waits_for_wire(false);
      if (!std::exchange(host_begun_, true)) begin_host(*step);
      if (!on_engine([](auto& engine) { return engine.progress_host_step(); })) return false;
    } else if (step->range.count > 0 || job_->args.collective == Collective::barrier) {
      // A Step with messages but an empty range sends nothing, except in a barrier, whose messages are all empty.
      if (!on_engine([&](auto& engine) { return performed(*step, engine); })) return false;
    }
    next_step();
    ++moves_;
    if (job_->input_stream != nullptr) job_->input_stream->done(schedule_.finished());
  }
  return messages_.drained();
}

bool Executor::input_ready() {
  waits_for_input_ = !job_->input_stream->ready(schedule_.round());
  if (waits_for_input_) messages_.set_waits_for_wire(false);
  return !waits_for_input_;
}

/// Records in the trace which kind of work this rank does now: an intra-host collective, messages inside the host, or
/// messages of which at least one goes to another host.
void Executor::trace(const Step& step) {
  trace_->phase(step.kind != Step::Kind::exchange ? Trace::Phase::host_collective
                : messages_.between_hosts(step)   ? Trace::Phase::between_hosts
                                                  : Trace::Phase::messages);
}

std::byte* Executor::receive_target(const Step& step) const {
  if (step.reduce || step.rows > 0 || step.destination != Place::output || coding_.codec != nullptr) return nullptr;
  std::byte* place = places_.address(step.destination, step.range);
  return messages_.uses(place, step.range.count * coding_.element) ? nullptr : place;
}

bool Executor::ready(const Step& step) {
  const std::size_t bytes = coding_.bytes(step.range.count);
  if (!std::exchange(receive_target_known_, true)) receive_target_ = receive_target(step);
  if (!messages_.ready(step, receive_target_, bytes)) return false;
  // If the wire still sends from the destination, the Step must wait, because it would overwrite the data. The messages
  // of the Step are received before this check. Otherwise two ranks could wait for each other, because the wire may
  // finish sending only after the peer has received.
  const std::byte* const destination =
      places_.address(step.before == Place::nowhere ? step.destination : step.before, step.range);
  const bool stays = !step.reduce && step.from.empty() && places_.address(step.source, step.range) == destination;
  // Coded messages are never sent from the caller's memory.
  const bool overwrites =
      (step.destination == Place::output && receive_target_ == nullptr && !stays) || step.before == Place::output;
  if (overwrites && coding_.codec == nullptr && messages_.uses(destination, bytes)) {
    messages_.set_waits_for_wire(true);  // progress() lets the wire send
    return false;
  }
  return true;
}

template <class Engine>
bool Executor::performed(const Step& step, Engine& engine) {
  const std::size_t bytes = coding_.bytes(step.range.count);
  if (!in_engine_) {
    if (!ready(step) || !engine.begin()) return false;
    if (step.destination == Place::work) places_.keep_as_work(step.work.count > 0 ? step.work : step.range, engine);
    if (coding_.codec != nullptr) {
      if (trace_ != nullptr) trace_->phase(Trace::Phase::coding);
      coded_step_.perform(step);
      return true;
    }
    if (step.joins || step.rows > 0) {
      step.joins ? join(step) : divide(step);
      return true;
    }
    const Made made = make(step, engine);
    const auto fill = [&](std::byte* frame) {
      if (frame != made.value && bytes > 0) engine.copy(frame, made.value, bytes);
    };
    if (engine.is_immediate()) {
      messages_.hand_on(step, bytes, made.lent, fill);
      return true;
    }
    messages_.fill_frames(step, made.lent, fill);
    engine.end();
    lent_ = made.lent;
    in_engine_ = true;
    ++moves_;
  }
  if (!engine.done()) return false;
  in_engine_ = false;
  messages_.hand_on(step, bytes, lent_, [](std::byte*) { /* the engine has filled the frame */ });
  return true;
}

void Executor::join(const Step& step) {
  const std::size_t bytes = step.range.count * coding_.element;
  std::byte* to = messages_.first_frame(step);
  for (const Rank peer : step.from) {
    const std::byte* const value =
        messages_.is_self(peer) ? places_.address(step.source, step.range) : messages_.taken(peer, bytes).data;
    std::memcpy(to, value, bytes);
    to += bytes;
  }
  messages_.hand_on(step, bytes * step.from.size(), nullptr, [](std::byte*) { /* the frame is full */ });
}

void Executor::divide(const Step& step) {
  const auto rows = static_cast<std::size_t>(step.rows), ranks = step.to.size();
  const std::size_t bytes = step.range.count * coding_.element, piece = bytes / rows;
  const std::byte* const message = messages_.taken(step.from[0], bytes * ranks).data;
  const auto copy_share = [&](std::size_t of, std::byte* to) {
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(to + row * piece, message + (row * ranks + of) * piece, piece);
  };
  for (std::size_t i = 0; i < ranks; ++i)
    if (messages_.is_self(step.to[i])) copy_share(i, places_.address(step.destination, step.range));
  std::size_t next = 0;
  messages_.hand_on(step, bytes, nullptr, [&](std::byte* frame) {
    if (messages_.is_self(step.to[next])) ++next;
    copy_share(next++, frame);
  });
}

template <class Engine>
Executor::Made Executor::make(const Step& step, Engine& engine) {
  const std::size_t bytes = step.range.count * coding_.element;
  std::byte* destination = places_.address(step.destination, step.range);
  const std::byte* value = nullptr;
  if (step.reduce) {
    // The result is written into its destination. If the Step has no destination, the result is written into the first
    // outgoing frame.
    std::byte* made = destination != nullptr ? destination : messages_.first_frame(step);
    std::size_t terms = 0;
    for (const Rank peer : step.from)
      sources_[terms++] = messages_.is_self(peer)
                              ? Source{places_.address(step.source, step.range), step.source == Place::input}
                              : Source{messages_.taken(peer, bytes).data, step.unreduced};
    const std::span<const Source> sources(sources_.data(), terms);
    engine.fold(job_->op, job_->type, sources, made, step.range.count, finish_ranks(step));
    if (std::byte* const before = places_.address(step.before, step.range); before != nullptr)
      engine.fold(job_->op, job_->type, sources.first(terms - 1), before, step.range.count, finish_ranks(step));
    value = made;
  } else {
    value = step.from.empty() ? places_.address(step.source, step.range) : messages_.taken(step.from[0], bytes).data;
    if (destination != nullptr && destination != value && bytes > 0) engine.copy(destination, value, bytes);
  }
  // Peers may read the caller's buffers in place, because ready() delays Steps that would overwrite memory being sent.
  const std::byte* lent = step.destination == Place::output                                 ? destination
                          : !step.reduce && step.from.empty() && step.source != Place::work ? value
                                                                                            : nullptr;
  return {value, lent};
}

int Executor::finish_ranks(const Step& step) const {
  return step.finish ? finish_ranks_of(job_->args.collective, view_.world.self, view_.world.size()) : 0;
}

void Executor::begin_host(const Step& step) {
  host_operands_ = {.source = places_.address(step.source, {}),
                    .type = job_->type,
                    .op = job_->op,
                    .finish_ranks = finish_ranks(step),
                    .unreduced = step.source == Place::input,
                    .tag = job_->tag};
  const bool gets_nothing = step.kind == Step::Kind::host_gather && step.root != view_.index_in(step.subgroup);
  if (step.destination == Place::work && !gets_nothing) {
    const int place = view_.index_in(step.subgroup);
    const auto at = static_cast<std::size_t>(place);
    Range mine{};
    if (step.has_one_owner() ? step.root == place : at < step.owners.size())
      mine = step.parts[step.has_one_owner() ? 0 : step.owners[at]];
    if (step.work.count > 0) mine = step.work;
    on_engine([&](auto& engine) { places_.keep_as_work(mine, engine); });
  }
  host_operands_.destination = places_.address(step.destination, {});
  on_engine([&](auto& engine) { engine.begin_host_step(step, host_operands_); });
}

}  // namespace collectives
