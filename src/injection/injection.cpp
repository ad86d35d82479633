// Implementation of Injection, which causes faults. A fault is a failure that a user requests for a test, such as the
// end of a rank (faults.hpp).
//
// For a fault `kill` or `stop`, the rank sends a signal to its own process. The fault thus happens at an exact point of
// the call. For a fault `drop`, the wire, the transport between hosts, loses the next UDP datagrams of one call.
#include "injection/injection.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

using Kind = Fault::Kind;
using Phase = Fault::Phase;

/// Ends or stops this process. SIGKILL takes effect before ::kill() returns.
void signal_own_process(int signal) { ::kill(::getpid(), signal); }

}  // namespace

std::unique_ptr<Injection> Injection::of_rank(const std::vector<Fault>& faults, Rank self, bool threads) {
  std::vector<Planned> own;
  for (const Fault& fault : faults)
    if (fault.rank == self) own.push_back({fault});
  if (own.empty()) return nullptr;
  return std::unique_ptr<Injection>(new Injection(std::move(own), self, threads));
}

/// Returns the reason why this communicator cannot cause a fault. Returns an empty text if it can.
std::string Injection::why_not(const Fault& fault) const {
  if (fault.kind == Kind::delay) return {};
  if (fault.kind == Kind::stop || fault.kind == Kind::kill)
    return threads_ ? "the ranks of this host are threads of one process, which would all stop or end" : "";
  if (wire_ == nullptr) return "all ranks share memory, in which no connection is cut and no message is lost";
  const std::string_view wire = wire_->name();
  if (fault.kind == Kind::disconnect) {
    const auto can_cut = [&](Rank peer) { return wire_->can_cause(WireFault::cut, peer); };
    return std::ranges::all_of(remote_, can_cut) ? "" : fmt::format("wire {} cannot cut its connections", wire);
  }
  if (std::ranges::count(remote_, fault.to) == 0)
    return fmt::format("ranks {} and {} share memory, in which no connection is cut and no message is lost", self_,
                       fault.to);
  if (fault.kind == Kind::cut)
    return wire_->can_cause(WireFault::cut, fault.to) ? "" : fmt::format("wire {} cannot cut a connection", wire);
  return wire_->can_cause(WireFault::lose, fault.to)
             ? ""
             : fmt::format("wire {} sends no datagrams to rank {}, and a stream loses nothing", wire, fault.to);
}

void Injection::connect(Wire* wire, std::vector<Rank> remote) {
  wire_ = wire;
  remote_ = std::move(remote);
  for (const Planned& planned : faults_)
    if (const std::string why = why_not(planned.fault); !why.empty())
      throw Error(Errc::invalid_argument,
                  fmt::format("construction: injected fault \"{}\" has no meaning here: {}", planned.fault.text(), why),
                  self_, kNoRank, "construction");
}

void Injection::cause(const Fault& fault) {
  if (threads_ && (fault.kind == Kind::stop || fault.kind == Kind::kill)) return;  // connect() has refused such a fault
  log_warning(self_, "injected: {}", fault.text());
  switch (fault.kind) {
    case Kind::delay: std::this_thread::sleep_for(fault.delay); break;
    case Kind::stop: signal_own_process(SIGSTOP); break;
    case Kind::kill: signal_own_process(SIGKILL); break;
    case Kind::disconnect:
      for (const Rank peer : remote_) wire_->cut(peer);
      break;
    case Kind::cut: wire_->cut(fault.to); break;
    case Kind::drop: wire_->lose(fault.to, fault.datagrams); break;
  }
}

void Injection::enter(std::uint64_t call, Phase phase) {
  for (Planned& planned : faults_) {
    const Fault& fault = planned.fault;
    if (fault.call != call) continue;
    if (!planned.happened && fault.phase == phase) {
      planned.happened = true;
      cause(fault);
    } else if (fault.kind == Kind::drop && phase == Phase::end) {
      // lose() returns the number of datagrams that the wire still had to lose. If it is above 0, the call sent fewer
      // datagrams than the fault asked for.
      const unsigned left = wire_->lose(fault.to, 0);
      if (left > 0)
        log_warning(self_, "injected: {}: the call sent only {} datagrams to rank {}", fault.text(),
                    fault.datagrams - left, fault.to);
    }
  }
}

void Injection::report_missed(std::uint64_t calls) const {
  for (const auto& [fault, happened] : faults_)
    if (!happened)
      log_warning(self_, "injected fault \"{}\" has not happened: the communicator ended after its call #{}{}",
                  fault.text(), calls,
                  fault.call <= calls && fault.phase == Phase::wait ? ", and that call did not wait" : "");
}

}  // namespace collectives
