// Implementation of PointToPoint: calls, tests and waits. point_to_point_progress.cpp moves the messages, and
// point_to_point_failures.cpp finds and reports failures.
#include "point_to_point/point_to_point.hpp"

#include <cstring>
#include <utility>

#include "base/wait.hpp"
#include "point_to_point/wire_link.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;

// Number of times for which a blocking receive polls the link of its source before it is posted. 500 polls take about
// a microsecond, in which the answer to a short message arrives.
constexpr int kPolls = 500;

}  // namespace

PointToPoint::PointToPoint(const Parts& parts)
    : view_(parts.view),
      arena_(parts.arena),
      wire_(parts.wire),
      failure_detector_(parts.failure_detector),
      recorder_(parts.recorder),
      write_out_(parts.write_out),
      control_(parts.control),
      oversubscribed_(parts.oversubscribed),
      has_progress_thread_(parts.has_progress_thread),
      stall_report_(parts.stall_report),
      self_(parts.view.world.self),
      peers_(parts.view.world.members.size()),
      matching_(parts.view.world.size()),
      direct_(parts.arena, parts.threads, parts.kernel, !parts.oversubscribed) {
  for (const Rank rank : view_.world.members) {
    Peer& one = peer(rank);
    one.local = view_.local_of(rank);
    if (is_self(rank)) continue;
    if (view_.host_of(rank) != view_.grid.host) {
      one.link = std::make_unique<WireLink>(*wire_, rank);
    } else {
      auto link = std::make_unique<HostLink>(arena_, one.local);
      one.host = link.get();
      one.link = std::move(link);
    }
  }
}

// ---- starting ----

void PointToPoint::begin(MessageOperation& operation) {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  failure_detector_.check();
  operation.number = ++calls_;
  const MessageCall& call = operation.call;
  recorder_.start_message({.number = operation.number,
                           .sends = call.sends(),
                           .peer = call.peer,
                           .tag = call.tag,
                           .count = call.count,
                           .type = call.type});
}

void PointToPoint::add_unfinished(MessageOperation& operation) noexcept {
  operation.listed = true;
  unfinished_.push_back(operation);
  unfinished_count_.fetch_add(1, std::memory_order_acq_rel);
}

void PointToPoint::complete(MessageOperation& operation) noexcept {
  moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  remove_unfinished(operation);
  recorder_.end_message(operation.number, OperationRecord::State::finished, operation.source);
  operation.set(MessageOperation::Stage::done);
}

void PointToPoint::remove_unfinished(MessageOperation& operation) noexcept {
  if (!operation.listed) return;
  operation.listed = false;
  unfinished_.remove(operation);
  unfinished_count_.fetch_sub(1, std::memory_order_acq_rel);
}

bool PointToPoint::post(MessageOperation& operation) {
  if (!operation.call.sends()) return post_receive(operation);
  const Rank to = operation.call.peer;
  if (is_self(to)) {
    Envelope envelope{.kind = MessageKind::eager,
                      .type = operation.call.type,
                      .tag = operation.call.tag,
                      .bytes = operation.bytes,
                      .address = reinterpret_cast<std::uintptr_t>(operation.call.data)};
    Peer& self = peer(to);
    note_sent(to, operation.bytes);
    if (operation.bytes <= kMessageRingBytes / 8 && has_credit(self, operation.bytes)) {
      self.eager_sent += operation.bytes + kEnvelopeCredit;
      complete(operation);
      handle(to, envelope, nullptr, operation.call.data);
      return true;
    }
    envelope.kind = MessageKind::request;
    envelope.id = operation.id = ++self.last_id;
    operation.set(MessageOperation::Stage::open);
    self.open.push_back(operation);
    add_unfinished(operation);
    handle(to, envelope, nullptr, nullptr);
    return operation.ended();
  }
  Peer& receiver = peer(to);
  if (receiver.waiting.empty() && hand_over(receiver, operation)) {
    if (operation.ended()) return true;
  } else {
    receiver.waiting.push_back(operation);
  }
  add_unfinished(operation);
  return false;
}

bool PointToPoint::has_credit(Peer& to, std::size_t bytes) {
  const std::uint64_t after = to.eager_sent + bytes + kEnvelopeCredit;
  if (after - to.eager_matched <= kMostUnmatched) return true;
  if (to.host != nullptr) to.eager_matched = to.host->peer_matched();
  return after - to.eager_matched <= kMostUnmatched;
}

bool PointToPoint::hand_over(Peer& to, MessageOperation& send) {
  const MessageCall& call = send.call;
  Envelope envelope{.kind = MessageKind::eager, .type = call.type, .tag = call.tag, .bytes = send.bytes};
  if (send.bytes <= to.link->longest_eager() && has_credit(to, send.bytes)) {
    if (!to.link->send(envelope, call.data, send.bytes)) return false;
    to.eager_sent += send.bytes + kEnvelopeCredit;
    note_sent(call.peer, send.bytes);
    complete(send);
    return true;
  }
  envelope.kind = MessageKind::request;
  envelope.id = send.id = to.last_id + 1;
  if (to.host != nullptr) {
    const RemoteBuffer mine = direct_.describe(call.data, send.bytes);
    envelope.address = mine.address;
    envelope.name = mine.name;
  }
  if (!to.link->send(envelope, nullptr, 0)) return false;
  ++to.last_id;
  note_sent(call.peer, send.bytes);
  send.set(MessageOperation::Stage::open);
  to.open.push_back(send);
  return true;
}

bool PointToPoint::post_receive(MessageOperation& receive) {
  StoredMessage* const stored = matching_.take_stored(receive.call);
  if (stored == nullptr) {
    matching_.post(receive);
    add_unfinished(receive);
    return false;
  }
  const Envelope envelope = stored->envelope;
  const Rank from = stored->from;
  try {
    check_shape(receive, from, envelope);
  } catch (...) {
    matching_.recycle(*stored);
    throw;
  }
  receive.source = from;
  if (envelope.kind == MessageKind::request) {
    matching_.recycle(*stored);
    add_unfinished(receive);
    accept(receive, from, envelope);
    return receive.ended();
  }
  if (receive.bytes > 0) std::memcpy(receive.call.data, stored->payload.data(), receive.bytes);
  matching_.recycle(*stored);
  give_credit(from, receive.bytes);
  complete(receive);
  return true;
}

bool PointToPoint::receive_at_once(MessageOperation& receive) {
  const MessageCall& call = receive.call;
  if (call.peer < 0 || !matching_.is_clear(call.peer)) return false;
  HostLink* const link = peer(call.peer).host;
  if (link == nullptr) return false;
  const Envelope* arrived = link->arrived();
  for (int polls = oversubscribed_ ? 1 : kPolls; arrived == nullptr && --polls > 0;) arrived = link->arrived();
  if (arrived == nullptr || arrived->kind != MessageKind::eager || arrived->tag != call.tag ||
      arrived->bytes != receive.bytes || arrived->type != call.type)
    return false;
  link->take(call.data);
  receive.source = call.peer;
  give_credit(call.peer, receive.bytes);
  complete(receive);
  return true;
}

// ---- blocking calls ----

void PointToPoint::run(MessageOperation& operation) {
  read_controls();
  {
    const Guard guard(lock_);
    begin(operation);
    if (!operation.call.sends() && receive_at_once(operation)) return;
    guarded([&] { post(operation); });
    note_wire();
    if (failure_ != nullptr && !operation.ended()) std::rethrow_exception(failure_);
  }
  if (!operation.ended()) wait_until(operation, Deadline::never());
  leave_unsent();
  if (operation.error != nullptr) std::rethrow_exception(operation.error);
}

void PointToPoint::run(MessageOperation& first, MessageOperation& second) {
  read_controls();
  {
    const Guard guard(lock_);
    begin(first);
    begin(second);
    guarded([&] {
      post(first);
      if (second.call.sends() || !receive_at_once(second)) post(second);
    });
    note_wire();
    if (failure_ != nullptr && (!first.ended() || !second.ended())) std::rethrow_exception(failure_);
  }
  for (MessageOperation* const one : {&first, &second})
    if (!one->ended()) wait_until(*one, Deadline::never());
  leave_unsent();
  for (MessageOperation* const one : {&first, &second})
    if (one->error != nullptr) std::rethrow_exception(one->error);
}

/// Lets later waits of this thread send the answers for which a link had no space, and what the wire has not sent.
/// Peers wait for both.
void PointToPoint::leave_unsent() {
  if (is_idle() || has_progress_thread_) return;
  const Guard guard(lock_);
  place_.move_to_this_thread();
}

// ---- asynchronous calls ----

void PointToPoint::start(MessageOperation& operation) {
  MessageOperation* const one = &operation;
  start(std::span(&one, 1));
}

void PointToPoint::start(std::span<MessageOperation* const> operations) {
  read_controls();
  const Guard guard(lock_);
  for (MessageOperation* const one : operations) begin(*one);
  if (!has_progress_thread_) place_.move_to_this_thread();
  guarded([&] {
    for (MessageOperation* const one : operations) post(*one);
  });
  note_wire();
  if (failure_ == nullptr) return;
  for (MessageOperation* const one : operations)
    if (!one->ended()) std::rethrow_exception(failure_);
}

bool PointToPoint::test(MessageOperation& operation) {
  if (operation.ended()) return true;
  const auto now = Clock::now();
  bool checks = false;
  {
    const Guard guard(lock_);
    progress();
    if (operation.ended()) return true;
    checks = now - checked_ >= std::chrono::milliseconds(1);
    if (checks) checked_ = now;
  }
  ProgressEngine* const engine = ProgressEngine::of_this_thread();
  if (engine != nullptr) engine->progress(*this, checks);
  if (!checks) return false;
  const auto control = try_control();
  const Guard guard(lock_);
  guarded([&] { detect_failures(control.owns_lock()); });
  return operation.ended();
}

bool PointToPoint::wait_until(MessageOperation& operation, Deadline until) {
  CollectiveBackoff backoff(oversubscribed_);
  const auto begun = Clock::now();
  std::uint64_t moved = moves();
  bool published = false;
  while (!operation.ended()) {
    {
      const Guard guard(lock_);
      progress();
    }
    if (operation.ended()) break;
    const bool check_failures = wait_turn(operation, backoff);
    if (check_failures) {
      const auto control = try_control();
      const Guard guard(lock_);
      published = true;
      guarded([&] {
        publish_wait(operation, Clock::now() - begun, control.owns_lock());
        detect_failures(control.owns_lock());
      });
      if (until.passed()) break;
    }
    ProgressEngine* const engine = ProgressEngine::of_this_thread();
    const bool others = engine != nullptr && engine->progress(*this, check_failures);
    if (const std::uint64_t moves = this->moves(); moves != std::exchange(moved, moves) || others) backoff.reset();
  }
  if (published) {
    const auto control = try_control();
    const Guard guard(lock_);
    withdraw_wait(control.owns_lock());
  }
  return operation.ended();
}

/// Waits for one turn. A sleep ends with an event of the wire if the operation waits for another host. The wire must
/// not be used by two threads, so the lock is held in this case.
bool PointToPoint::wait_turn(const MessageOperation& operation, CollectiveBackoff& backoff) {
  const Rank awaited = operation.call.peer;
  if (awaited < 0 || is_self(awaited) || peer(awaited).host != nullptr) return backoff.wait();
  const Guard guard(lock_);
  return backoff.wait(wire_);
}

/// Reads control messages of other hosts, at most once per millisecond. A call that waits for no peer would otherwise
/// read none. Throws the failure of the communicator.
void PointToPoint::read_controls() {
  if (const auto control = try_control()) failure_detector_.check_control_throttled();
}

std::unique_lock<std::mutex> PointToPoint::try_control() {
  return control_ != nullptr ? std::unique_lock(*control_, std::try_to_lock) : std::unique_lock<std::mutex>();
}

/// Detects no failures of other hosts, because the caller may hold the communicator's lock.
bool PointToPoint::progress_as_member(bool check_failures) noexcept {
  if (is_idle()) return false;
  const Guard guard(lock_, std::try_to_lock);
  if (!guard.owns_lock()) return false;
  const bool moved = progress();
  if (check_failures) guarded([&] { detect_failures(false); });
  return moved;
}

}  // namespace collectives
