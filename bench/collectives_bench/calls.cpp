// Implementation of the calls of this library that collectives_bench times. A persistent call is one whose arguments
// are given once, and which is then started many times.
#include "collectives_bench/calls.hpp"

#include <stdexcept>
#include <utility>

namespace collectives::bench {

namespace {

void perform_message(Communicator& comm, const Call& call, const Options& options) {
  if (call.operation == Operation::sendrecv) {
    comm.sendrecv(call.input, call.peer_to, call.output, call.peer_from, 0, options);
  } else if (call.peer_to != kNoRank) {
    if (call.rank % 2 == 0) comm.send(call.input, call.peer_to, 0, options);
    comm.recv(call.output, call.peer_to, 0, options);
    if (call.rank % 2 != 0) comm.send(call.input, call.peer_to, 0, options);
  }
}

/// Makes the call of a collective on `target`: a communicator, which performs it, or a group.
template <class Target>
void call_collective(Target& target, const Call& call, const Options& options) {
  const auto& [operation, type, op, root, rank, in_place, input, output, whole, counts, count, to, from, set] = call;
  switch (operation) {
    case Operation::all_reduce: return target.all_reduce(input, output, op, options);
    case Operation::reduce_scatter: return target.reduce_scatter(input, output, op, options);
    case Operation::reduce_scatter_v: return target.reduce_scatter_v(input, output, counts, op, options);
    case Operation::all_gather: return target.all_gather(input, output, options);
    case Operation::all_gather_v: return target.all_gather_v(input, output, counts, options);
    case Operation::broadcast:
      return in_place ? target.broadcast(output, root, options) : target.broadcast(input, output, root, options);
    case Operation::reduce: return target.reduce(input, output, op, root, options);
    case Operation::all_to_all: return target.all_to_all(input, output, options);
    case Operation::all_to_all_v: return target.all_to_all_v(input, counts, output, counts, options);
    case Operation::gather: return target.gather(input, output, root, options);
    case Operation::gather_v: return target.gather_v(input, output, counts, root, options);
    case Operation::scatter: return target.scatter(input, output, root, options);
    case Operation::scatter_v: return target.scatter_v(input, output, counts, root, options);
    case Operation::scan: return target.scan(input, output, op, options);
    case Operation::exclusive_scan: return target.exclusive_scan(input, output, op, options);
    case Operation::barrier: return target.barrier(options);
    case Operation::sendrecv:
    case Operation::ping_pong: break;
  }
  throw std::logic_error("a message is no collective");
}

}  // namespace

void perform(Communicator& comm, const Call& call, const Options& options) {
  if (is_message(call.operation)) return perform_message(comm, call, options);
  call_collective(comm, call, options);
}

void add_to(Group& group, const Call& call, const Options& options) { call_collective(group, call, options); }

namespace {

/// Makes the persistent call of an operation. Requires that the operation is no ping_pong, which needs two calls: a
/// send and a receive.
PersistentCall make_one(Communicator& comm, const Call& call, const Options& options) {
  const auto& [operation, type, op, root, rank, in_place, input, output, whole, counts, count, to, from, set] = call;
  switch (operation) {
    case Operation::all_reduce: return comm.persistent_all_reduce(input, output, op, options);
    case Operation::reduce_scatter: return comm.persistent_reduce_scatter(input, output, op, options);
    case Operation::reduce_scatter_v: return comm.persistent_reduce_scatter_v(input, output, counts, op, options);
    case Operation::all_gather: return comm.persistent_all_gather(input, output, options);
    case Operation::all_gather_v: return comm.persistent_all_gather_v(input, output, counts, options);
    case Operation::broadcast:
      return comm.persistent_broadcast(in_place ? ConstBuffer(output) : input, output, root, options);
    case Operation::reduce: return comm.persistent_reduce(input, output, op, root, options);
    case Operation::all_to_all: return comm.persistent_all_to_all(input, output, options);
    case Operation::all_to_all_v: return comm.persistent_all_to_all_v(input, counts, output, counts, options);
    case Operation::gather: return comm.persistent_gather(input, output, root, options);
    case Operation::gather_v: return comm.persistent_gather_v(input, output, counts, root, options);
    case Operation::scatter: return comm.persistent_scatter(input, output, root, options);
    case Operation::scatter_v: return comm.persistent_scatter_v(input, output, counts, root, options);
    case Operation::scan: return comm.persistent_scan(input, output, op, options);
    case Operation::exclusive_scan: return comm.persistent_exclusive_scan(input, output, op, options);
    case Operation::sendrecv: return comm.persistent_sendrecv(input, to, output, from, 0, options);
    case Operation::barrier: return comm.persistent_barrier(options);
    case Operation::ping_pong: break;
  }
  throw std::logic_error("a ping_pong is two calls");
}

}  // namespace

std::vector<PersistentCall> make_persistent(Communicator& comm, const Call& call, const Options& options) {
  std::vector<PersistentCall> calls;
  if (call.operation != Operation::ping_pong) {
    calls.push_back(make_one(comm, call, options));
  } else if (call.peer_to != kNoRank) {
    calls.push_back(comm.persistent_send(call.input, call.peer_to, 0, options));
    calls.push_back(comm.persistent_recv(call.output, call.peer_to, 0, options));
    if (call.rank % 2 != 0) std::swap(calls[0], calls[1]);
  }
  return calls;
}

}  // namespace collectives::bench
