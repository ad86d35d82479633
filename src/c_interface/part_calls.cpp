// Functions of the C interface for gather, scatter and scans. Each function converts its arguments, and calls one
// function of the C++ interface, such as Communicator::gather().
#include "c_interface/call_parts.hpp"
#include "c_interface/calls.hpp"

using namespace collectives;
using namespace collectives::c;

collectives_error collectives_gather(collectives_communicator* comm, const void* input, void* output, size_t count,
                                     collectives_data_type type, int root, const collectives_options* options) {
  return called(__func__, comm, {Collective::gather}, [&] {
    const auto [from, to] = buffers_of_gather(in(comm), input, output, count, type_of(type), root);
    in(comm).gather(from, to, root, CallOptions(options));
  });
}

collectives_error collectives_gather_async(collectives_communicator* comm, const void* input, void* output,
                                           size_t count, collectives_data_type type, int root,
                                           const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::gather}, work, [&] {
    const auto [from, to] = buffers_of_gather(in(comm), input, output, count, type_of(type), root);
    return in(comm).gather_async(from, to, root, CallOptions(options));
  });
}

collectives_error collectives_scatter(collectives_communicator* comm, const void* input, void* output, size_t count,
                                      collectives_data_type type, int root, const collectives_options* options) {
  return called(__func__, comm, {Collective::scatter}, [&] {
    const auto [from, to] = buffers_of_scatter(in(comm), input, output, count, type_of(type), root);
    in(comm).scatter(from, to, root, CallOptions(options));
  });
}

collectives_error collectives_scatter_async(collectives_communicator* comm, const void* input, void* output,
                                            size_t count, collectives_data_type type, int root,
                                            const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::scatter}, work, [&] {
    const auto [from, to] = buffers_of_scatter(in(comm), input, output, count, type_of(type), root);
    return in(comm).scatter_async(from, to, root, CallOptions(options));
  });
}

collectives_error collectives_scan(collectives_communicator* comm, const void* input, void* output, size_t count,
                                   collectives_data_type type, collectives_op op, const collectives_options* options) {
  return called(__func__, comm, {Collective::scan}, [&] {
    const CallOptions how(options);
    in(comm).scan({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_scan_async(collectives_communicator* comm, const void* input, void* output, size_t count,
                                         collectives_data_type type, collectives_op op,
                                         const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::scan}, work, [&] {
    const CallOptions how(options);
    return in(comm).scan_async({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_exclusive_scan(collectives_communicator* comm, const void* input, void* output,
                                             size_t count, collectives_data_type type, collectives_op op,
                                             const collectives_options* options) {
  return called(__func__, comm, {Collective::exclusive_scan}, [&] {
    const CallOptions how(options);
    in(comm).exclusive_scan({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_exclusive_scan_async(collectives_communicator* comm, const void* input, void* output,
                                                   size_t count, collectives_data_type type, collectives_op op,
                                                   const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::exclusive_scan}, work, [&] {
    const CallOptions how(options);
    return in(comm).exclusive_scan_async({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op),
                                         how);
  });
}
