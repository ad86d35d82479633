// Functions of the C interface for all-to-all, and for gather and scatter with blocks of different lengths. A block
// consists of the elements that one rank sends to another.
//
// Each function converts its arguments to those of the C++ interface, and calls one function of Communicator. The
// helpers called() and issued() catch an exception, and return an error code.
#include "c_interface/call_parts.hpp"
#include "c_interface/calls.hpp"

using namespace collectives;
using namespace collectives::c;

collectives_error collectives_all_to_all(collectives_communicator* comm, const void* input, void* output, size_t count,
                                         collectives_data_type type, const collectives_options* options) {
  return called(__func__, comm, {Collective::all_to_all}, [&] {
    const auto [from, to] = buffers_of_all_to_all(in(comm), input, output, count, type_of(type));
    in(comm).all_to_all(from, to, CallOptions(options));
  });
}

collectives_error collectives_all_to_all_async(collectives_communicator* comm, const void* input, void* output,
                                               size_t count, collectives_data_type type,
                                               const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::all_to_all}, work, [&] {
    const auto [from, to] = buffers_of_all_to_all(in(comm), input, output, count, type_of(type));
    return in(comm).all_to_all_async(from, to, CallOptions(options));
  });
}

collectives_error collectives_all_to_all_v(collectives_communicator* comm, const void* input,
                                           const size_t* input_counts, const size_t* input_displacements, void* output,
                                           const size_t* output_counts, const size_t* output_displacements,
                                           collectives_data_type type, const collectives_options* options) {
  return called(__func__, comm, {Collective::all_to_all, true}, [&] {
    const ListedBlocks from(in(comm), input_counts, "input_counts", input_displacements);
    const ListedBlocks to(in(comm), output_counts, "output_counts", output_displacements);
    in(comm).all_to_all_v({input, from.elements, type_of(type)}, from.layout, {output, to.elements, type_of(type)},
                          to.layout, CallOptions(options));
  });
}

collectives_error collectives_all_to_all_v_async(collectives_communicator* comm, const void* input,
                                                 const size_t* input_counts, const size_t* input_displacements,
                                                 void* output, const size_t* output_counts,
                                                 const size_t* output_displacements, collectives_data_type type,
                                                 const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::all_to_all, true}, work, [&] {
    const ListedBlocks from(in(comm), input_counts, "input_counts", input_displacements);
    const ListedBlocks to(in(comm), output_counts, "output_counts", output_displacements);
    return in(comm).all_to_all_v_async({input, from.elements, type_of(type)}, from.layout,
                                       {output, to.elements, type_of(type)}, to.layout, CallOptions(options));
  });
}

collectives_error collectives_gather_v(collectives_communicator* comm, const void* input, size_t count, void* output,
                                       const size_t* counts, const size_t* displacements, collectives_data_type type,
                                       int root, const collectives_options* options) {
  return called(__func__, comm, {Collective::gather, true}, [&] {
    const ListedBlocks whole = at_root(in(comm), root, counts, displacements);
    in(comm).gather_v({input, count, type_of(type)}, {output, whole.elements, type_of(type)}, whole.layout, root,
                      CallOptions(options));
  });
}

collectives_error collectives_gather_v_async(collectives_communicator* comm, const void* input, size_t count,
                                             void* output, const size_t* counts, const size_t* displacements,
                                             collectives_data_type type, int root, const collectives_options* options,
                                             collectives_work** work) {
  return issued(__func__, comm, {Collective::gather, true}, work, [&] {
    const ListedBlocks whole = at_root(in(comm), root, counts, displacements);
    return in(comm).gather_v_async({input, count, type_of(type)}, {output, whole.elements, type_of(type)}, whole.layout,
                                   root, CallOptions(options));
  });
}

collectives_error collectives_scatter_v(collectives_communicator* comm, const void* input, const size_t* counts,
                                        const size_t* displacements, void* output, size_t count,
                                        collectives_data_type type, int root, const collectives_options* options) {
  return called(__func__, comm, {Collective::scatter, true}, [&] {
    const ListedBlocks whole = at_root(in(comm), root, counts, displacements);
    in(comm).scatter_v({input, whole.elements, type_of(type)}, {output, count, type_of(type)}, whole.layout, root,
                       CallOptions(options));
  });
}

collectives_error collectives_scatter_v_async(collectives_communicator* comm, const void* input, const size_t* counts,
                                              const size_t* displacements, void* output, size_t count,
                                              collectives_data_type type, int root, const collectives_options* options,
                                              collectives_work** work) {
  return issued(__func__, comm, {Collective::scatter, true}, work, [&] {
    const ListedBlocks whole = at_root(in(comm), root, counts, displacements);
    return in(comm).scatter_v_async({input, whole.elements, type_of(type)}, {output, count, type_of(type)},
                                    whole.layout, root, CallOptions(options));
  });
}
