// Functions of the C interface for persistent calls. A persistent call is checked and planned once, and started many
// times, as in MPI. Each function converts its arguments, and calls one function of the C++ interface, such as
// Communicator::persistent_all_reduce().
#include <memory>
#include <span>
#include <utility>

#include "c_interface/call_parts.hpp"
#include "c_interface/handles.hpp"

using namespace collectives;
using namespace collectives::c;

namespace {

/// Sets `*call` to a handle of the result of make(), or to NULL if make() throws.
template <class Make>
collectives_error persistent(const char* function, collectives_persistent** call, Make&& make) noexcept {
  return made(function, call, "call",
              [&] { return std::make_unique<collectives_persistent>(collectives_persistent{make()}); });
}

}  // namespace

collectives_error collectives_persistent_all_reduce(collectives_communicator* comm, const void* input, void* output,
                                                    size_t count, collectives_data_type type, collectives_op op,
                                                    const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const CallOptions how(options);
    return in(comm).persistent_all_reduce({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op),
                                          how);
  });
}

collectives_error collectives_persistent_reduce_scatter(collectives_communicator* comm, const void* input, void* output,
                                                        size_t count, collectives_data_type type, collectives_op op,
                                                        const collectives_options* options,
                                                        collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const CallOptions how(options);
    const auto [whole, mine] = equal(in(comm), count);
    return in(comm).persistent_reduce_scatter({input, whole, type_of(type)}, {output, mine, type_of(type)}, how.op(op),
                                              how);
  });
}

collectives_error collectives_persistent_reduce_scatter_v(collectives_communicator* comm, const void* input,
                                                          void* output, const size_t* counts,
                                                          collectives_data_type type, collectives_op op,
                                                          const collectives_options* options,
                                                          collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const CallOptions how(options, true);
    const auto list = listed(in(comm), counts, how.displacements());
    const auto [whole, mine] = unequal(in(comm), list);
    return in(comm).persistent_reduce_scatter_v({input, whole, type_of(type)}, {output, mine, type_of(type)}, list,
                                                how.op(op), how);
  });
}

collectives_error collectives_persistent_all_gather(collectives_communicator* comm, const void* input, void* output,
                                                    size_t count, collectives_data_type type,
                                                    const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const auto [whole, mine] = equal(in(comm), count);
    return in(comm).persistent_all_gather({input, mine, type_of(type)}, {output, whole, type_of(type)},
                                          CallOptions(options));
  });
}

collectives_error collectives_persistent_all_gather_v(collectives_communicator* comm, const void* input, void* output,
                                                      const size_t* counts, collectives_data_type type,
                                                      const collectives_options* options,
                                                      collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const CallOptions how(options, true);
    const auto list = listed(in(comm), counts, how.displacements());
    const auto [whole, mine] = unequal(in(comm), list);
    return in(comm).persistent_all_gather_v({input, mine, type_of(type)}, {output, whole, type_of(type)}, list, how);
  });
}

collectives_error collectives_persistent_broadcast(collectives_communicator* comm, const void* input, void* output,
                                                   size_t count, collectives_data_type type, int root,
                                                   const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    return in(comm).persistent_broadcast({input, count, type_of(type)}, {output, count, type_of(type)}, root,
                                         CallOptions(options));
  });
}

collectives_error collectives_persistent_reduce(collectives_communicator* comm, const void* input, void* output,
                                                size_t count, collectives_data_type type, collectives_op op, int root,
                                                const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const CallOptions how(options);
    return in(comm).persistent_reduce({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), root,
                                      how);
  });
}

collectives_error collectives_persistent_all_to_all(collectives_communicator* comm, const void* input, void* output,
                                                    size_t count, collectives_data_type type,
                                                    const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const auto [from, to] = buffers_of_all_to_all(in(comm), input, output, count, type_of(type));
    return in(comm).persistent_all_to_all(from, to, CallOptions(options));
  });
}

collectives_error collectives_persistent_all_to_all_v(collectives_communicator* comm, const void* input,
                                                      const size_t* input_counts, const size_t* input_displacements,
                                                      void* output, const size_t* output_counts,
                                                      const size_t* output_displacements, collectives_data_type type,
                                                      const collectives_options* options,
                                                      collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const ListedBlocks from(in(comm), input_counts, "input_counts", input_displacements);
    const ListedBlocks to(in(comm), output_counts, "output_counts", output_displacements);
    return in(comm).persistent_all_to_all_v({input, from.elements, type_of(type)}, from.layout,
                                            {output, to.elements, type_of(type)}, to.layout, CallOptions(options));
  });
}

collectives_error collectives_persistent_gather(collectives_communicator* comm, const void* input, void* output,
                                                size_t count, collectives_data_type type, int root,
                                                const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const auto [from, to] = buffers_of_gather(in(comm), input, output, count, type_of(type), root);
    return in(comm).persistent_gather(from, to, root, CallOptions(options));
  });
}

collectives_error collectives_persistent_scatter(collectives_communicator* comm, const void* input, void* output,
                                                 size_t count, collectives_data_type type, int root,
                                                 const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const auto [from, to] = buffers_of_scatter(in(comm), input, output, count, type_of(type), root);
    return in(comm).persistent_scatter(from, to, root, CallOptions(options));
  });
}

collectives_error collectives_persistent_gather_v(collectives_communicator* comm, const void* input, size_t count,
                                                  void* output, const size_t* counts, const size_t* displacements,
                                                  collectives_data_type type, int root,
                                                  const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const ListedBlocks whole = at_root(in(comm), root, counts, displacements);
    return in(comm).persistent_gather_v({input, count, type_of(type)}, {output, whole.elements, type_of(type)},
                                        whole.layout, root, CallOptions(options));
  });
}

collectives_error collectives_persistent_scatter_v(collectives_communicator* comm, const void* input,
                                                   const size_t* counts, const size_t* displacements, void* output,
                                                   size_t count, collectives_data_type type, int root,
                                                   const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const ListedBlocks whole = at_root(in(comm), root, counts, displacements);
    return in(comm).persistent_scatter_v({input, whole.elements, type_of(type)}, {output, count, type_of(type)},
                                         whole.layout, root, CallOptions(options));
  });
}

collectives_error collectives_persistent_scan(collectives_communicator* comm, const void* input, void* output,
                                              size_t count, collectives_data_type type, collectives_op op,
                                              const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const CallOptions how(options);
    return in(comm).persistent_scan({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_persistent_exclusive_scan(collectives_communicator* comm, const void* input, void* output,
                                                        size_t count, collectives_data_type type, collectives_op op,
                                                        const collectives_options* options,
                                                        collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    const CallOptions how(options);
    return in(comm).persistent_exclusive_scan({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op),
                                              how);
  });
}

collectives_error collectives_persistent_send(collectives_communicator* comm, const void* data, size_t count,
                                              collectives_data_type type, int to, int tag,
                                              const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    return in(comm).persistent_send({data, count, type_of(type)}, to, tag, CallOptions(options));
  });
}

collectives_error collectives_persistent_recv(collectives_communicator* comm, void* data, size_t count,
                                              collectives_data_type type, int from, int tag,
                                              const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    return in(comm).persistent_recv({data, count, type_of(type)}, from, tag, CallOptions(options));
  });
}

collectives_error collectives_persistent_sendrecv(collectives_communicator* comm, const void* input, size_t send_count,
                                                  int to, void* output, size_t recv_count, int from,
                                                  collectives_data_type type, int tag,
                                                  const collectives_options* options, collectives_persistent** call) {
  return persistent(__func__, call, [&] {
    return in(comm).persistent_sendrecv({input, send_count, type_of(type)}, to, {output, recv_count, type_of(type)},
                                        from, tag, CallOptions(options));
  });
}

collectives_error collectives_persistent_barrier(collectives_communicator* comm, const collectives_options* options,
                                                 collectives_persistent** call) {
  return persistent(__func__, call, [&] { return in(comm).persistent_barrier(CallOptions(options)); });
}

collectives_error collectives_persistent_start(collectives_persistent* call) {
  return guarded(__func__, [&] { require(call, "call").call.start(); });
}

collectives_error collectives_persistent_wait(collectives_persistent* call) {
  return guarded(__func__, [&] { require(call, "call").call.wait(); });
}

collectives_error collectives_persistent_wait_for(collectives_persistent* call, double seconds, int* done) {
  return guarded(__func__, [&] {
    require(done, "done") = 0;
    *done = require(call, "call").call.wait_for(duration_of(seconds, "seconds"));
  });
}

collectives_error collectives_persistent_test(collectives_persistent* call, int* done) {
  return guarded(__func__, [&] {
    require(done, "done") = 0;
    *done = require(call, "call").call.test();
  });
}

collectives_error collectives_persistent_source(const collectives_persistent* call, int* source) {
  return guarded(__func__, [&] { require(source, "source") = require(call, "call").call.source(); });
}

void collectives_persistent_free(collectives_persistent* call) { delete call; }
