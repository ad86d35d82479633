// C functions for gather, scatter and scans.
#include "c_interface/calls.hpp"

using namespace collectives;
using namespace collectives::c;

namespace {

/// Returns the elements of all parts. If they overflow, the C++ call refuses the arguments.
std::size_t all_parts(collectives_communicator* comm, std::size_t count) {
  return count * static_cast<std::size_t>(in(comm).size());
}
/// Returns whether this rank is the root, which has the buffer with all parts.
bool is_root(collectives_communicator* comm, int root) { return in(comm).rank() == root; }

ConstBuffer whole_input(collectives_communicator* comm, const void* input, std::size_t count,
                        collectives_data_type type, int root) {
  return is_root(comm, root) ? ConstBuffer(input, all_parts(comm, count), type_of(type)) : ConstBuffer();
}
Buffer whole_output(collectives_communicator* comm, void* output, std::size_t count, collectives_data_type type,
                    int root) {
  return is_root(comm, root) ? Buffer(output, all_parts(comm, count), type_of(type)) : Buffer();
}

}  // namespace

collectives_error collectives_gather(collectives_communicator* comm, const void* input, void* output, size_t count,
                                     collectives_data_type type, int root, const collectives_options* options) {
  return called(__func__, comm, {Collective::gather}, [&] {
    in(comm).gather({input, count, type_of(type)}, whole_output(comm, output, count, type, root), root,
                    CallOptions(options));
  });
}

collectives_error collectives_gather_async(collectives_communicator* comm, const void* input, void* output,
                                           size_t count, collectives_data_type type, int root,
                                           const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::gather}, work, [&] {
    return in(comm).gather_async({input, count, type_of(type)}, whole_output(comm, output, count, type, root), root,
                                 CallOptions(options));
  });
}

collectives_error collectives_scatter(collectives_communicator* comm, const void* input, void* output, size_t count,
                                      collectives_data_type type, int root, const collectives_options* options) {
  return called(__func__, comm, {Collective::scatter}, [&] {
    in(comm).scatter(whole_input(comm, input, count, type, root), {output, count, type_of(type)}, root,
                     CallOptions(options));
  });
}

collectives_error collectives_scatter_async(collectives_communicator* comm, const void* input, void* output,
                                            size_t count, collectives_data_type type, int root,
                                            const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::scatter}, work, [&] {
    return in(comm).scatter_async(whole_input(comm, input, count, type, root), {output, count, type_of(type)}, root,
                                  CallOptions(options));
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
