// Functions of the C interface for point-to-point calls, by which one rank sends elements to another rank. Each
// function converts its arguments, and calls one function of the C++ interface, such as Communicator::send().
#include "c_interface/handles.hpp"

using namespace collectives;
using namespace collectives::c;

static_assert(COLLECTIVES_ANY_SOURCE == any_source);

namespace {

Communicator& members_of(collectives_communicator* comm) { return require(comm, "comm").comm; }

/// Starts a call by start(). Sets `*work` to the handle of the call, or to NULL if the call fails.
template <class Start>
collectives_error started(const char* function, collectives_work** work, Start&& start) noexcept {
  return made(function, work, "work", [&] {
    auto handle = std::make_unique<collectives_work>();
    handle->work = start();
    return handle;
  });
}

/// Receives a message by receive(), and sets `*source` to its sender.
template <class Receive>
collectives_error received(const char* function, int* source, Receive&& receive) noexcept {
  return guarded(function, [&] {
    const Rank from = receive();
    if (source != nullptr) *source = from;
  });
}

}  // namespace

collectives_error collectives_send(collectives_communicator* comm, const void* data, size_t count,
                                   collectives_data_type type, int to, int tag, const collectives_options* options) {
  return guarded(__func__, [&] { members_of(comm).send({data, count, type_of(type)}, to, tag, CallOptions(options)); });
}

collectives_error collectives_send_async(collectives_communicator* comm, const void* data, size_t count,
                                         collectives_data_type type, int to, int tag,
                                         const collectives_options* options, collectives_work** work) {
  return started(__func__, work, [&] {
    return members_of(comm).send_async({data, count, type_of(type)}, to, tag, CallOptions(options));
  });
}

collectives_error collectives_recv(collectives_communicator* comm, void* data, size_t count, collectives_data_type type,
                                   int from, int tag, const collectives_options* options, int* source) {
  return received(__func__, source, [&] {
    return members_of(comm).recv({data, count, type_of(type)}, from, tag, CallOptions(options));
  });
}

collectives_error collectives_recv_async(collectives_communicator* comm, void* data, size_t count,
                                         collectives_data_type type, int from, int tag,
                                         const collectives_options* options, collectives_work** work) {
  return started(__func__, work, [&] {
    return members_of(comm).recv_async({data, count, type_of(type)}, from, tag, CallOptions(options));
  });
}

collectives_error collectives_sendrecv(collectives_communicator* comm, const void* input, size_t send_count, int to,
                                       void* output, size_t recv_count, int from, collectives_data_type type, int tag,
                                       const collectives_options* options, int* source) {
  return received(__func__, source, [&] {
    return members_of(comm).sendrecv({input, send_count, type_of(type)}, to, {output, recv_count, type_of(type)}, from,
                                     tag, CallOptions(options));
  });
}

collectives_error collectives_sendrecv_async(collectives_communicator* comm, const void* input, size_t send_count,
                                             int to, void* output, size_t recv_count, int from,
                                             collectives_data_type type, int tag, const collectives_options* options,
                                             collectives_work** work) {
  return started(__func__, work, [&] {
    return members_of(comm).sendrecv_async({input, send_count, type_of(type)}, to, {output, recv_count, type_of(type)},
                                           from, tag, CallOptions(options));
  });
}

collectives_error collectives_work_source(const collectives_work* work, int* source) {
  return guarded(__func__, [&] { require(source, "source") = require(work, "work").work.source(); });
}
