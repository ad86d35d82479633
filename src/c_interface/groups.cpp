// Functions of the C interface for groups. A group performs several collectives and messages together. A program adds
// calls to a group by functions such as collectives_group_all_reduce(), and then runs the group.
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "c_interface/call_parts.hpp"
#include "c_interface/handles.hpp"

using namespace collectives;
using namespace collectives::c;

namespace {

/// Adds a call to the group by add(group, comm). If add() refuses an argument before it has called the C++ function,
/// publishes this refusal. Other ranks in the same call then get an error.
template <class Add>
collectives_error added(const char* function, collectives_group* group, CallRefusal refusal, Add&& add) noexcept {
  return guarded(function, [&] {
    collectives_group& to = require(group, "group");
    refusing(to.group, refusal, [&] { add(to.group, *to.comm); });
  });
}

/// Returns the tensors of a list. Tensor r has counts[r] elements.
template <class Tensor, class Pointer>
std::vector<Tensor> tensors_of(Pointer* list, const char* what, std::span<const std::size_t> counts, DataType type) {
  const Pointer* const first = &require(list, what);
  std::vector<Tensor> tensors;
  for (std::size_t r = 0; r < counts.size(); ++r) tensors.emplace_back(first[r], counts[r], type);
  return tensors;
}

}  // namespace

collectives_error collectives_group_create(collectives_communicator* comm, collectives_group** group) {
  return made(__func__, group, "group", [&] {
    return std::make_unique<collectives_group>(collectives_group{in(comm).group(), &in(comm)});
  });
}

collectives_error collectives_group_all_reduce(collectives_group* group, const void* input, void* output, size_t count,
                                               collectives_data_type type, collectives_op op,
                                               const collectives_options* options) {
  return added(__func__, group, {Collective::all_reduce}, [&](Group& to, const Communicator&) {
    const CallOptions how(options);
    to.all_reduce({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_group_reduce_scatter(collectives_group* group, const void* input, void* output,
                                                   size_t count, collectives_data_type type, collectives_op op,
                                                   const collectives_options* options) {
  return added(__func__, group, {Collective::reduce_scatter}, [&](Group& to, const Communicator& comm) {
    const CallOptions how(options);
    const auto [whole, mine] = equal(comm, count);
    to.reduce_scatter(ConstBuffer(input, whole, type_of(type)), {output, mine, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_group_reduce_scatter_v(collectives_group* group, const void* input, void* output,
                                                     const size_t* counts, collectives_data_type type,
                                                     collectives_op op, const collectives_options* options) {
  return added(__func__, group, {Collective::reduce_scatter, true}, [&](Group& to, const Communicator& comm) {
    const CallOptions how(options, true);
    const auto list = listed(comm, counts, how.displacements());
    const auto [whole, mine] = unequal(comm, list);
    to.reduce_scatter_v({input, whole, type_of(type)}, {output, mine, type_of(type)}, list, how.op(op), how);
  });
}

collectives_error collectives_group_reduce_scatter_list(collectives_group* group, const void* const* inputs,
                                                        void* output, const size_t* counts, collectives_data_type type,
                                                        collectives_op op, const collectives_options* options) {
  return added(__func__, group, {Collective::reduce_scatter}, [&](Group& to, const Communicator& comm) {
    const CallOptions how(options);
    const auto list = listed(comm, counts);
    const auto tensors = tensors_of<ConstBuffer>(inputs, "inputs", list.counts, type_of(type));
    to.reduce_scatter(tensors, {output, unequal(comm, list).mine, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_group_all_gather(collectives_group* group, const void* input, void* output, size_t count,
                                               collectives_data_type type, const collectives_options* options) {
  return added(__func__, group, {Collective::all_gather}, [&](Group& to, const Communicator& comm) {
    const auto [whole, mine] = equal(comm, count);
    to.all_gather({input, mine, type_of(type)}, Buffer(output, whole, type_of(type)), CallOptions(options));
  });
}

collectives_error collectives_group_all_gather_v(collectives_group* group, const void* input, void* output,
                                                 const size_t* counts, collectives_data_type type,
                                                 const collectives_options* options) {
  return added(__func__, group, {Collective::all_gather, true}, [&](Group& to, const Communicator& comm) {
    const CallOptions how(options, true);
    const auto list = listed(comm, counts, how.displacements());
    const auto [whole, mine] = unequal(comm, list);
    to.all_gather_v({input, mine, type_of(type)}, {output, whole, type_of(type)}, list, how);
  });
}

collectives_error collectives_group_all_gather_list(collectives_group* group, const void* input, void* const* outputs,
                                                    const size_t* counts, collectives_data_type type,
                                                    const collectives_options* options) {
  return added(__func__, group, {Collective::all_gather}, [&](Group& to, const Communicator& comm) {
    const auto list = listed(comm, counts);
    const auto tensors = tensors_of<Buffer>(outputs, "outputs", list.counts, type_of(type));
    to.all_gather({input, unequal(comm, list).mine, type_of(type)}, tensors, CallOptions(options));
  });
}

collectives_error collectives_group_broadcast(collectives_group* group, const void* input, void* output, size_t count,
                                              collectives_data_type type, int root,
                                              const collectives_options* options) {
  return added(__func__, group, {Collective::broadcast}, [&](Group& to, const Communicator&) {
    to.broadcast({input, count, type_of(type)}, {output, count, type_of(type)}, root, CallOptions(options));
  });
}

collectives_error collectives_group_reduce(collectives_group* group, const void* input, void* output, size_t count,
                                           collectives_data_type type, collectives_op op, int root,
                                           const collectives_options* options) {
  return added(__func__, group, {Collective::reduce}, [&](Group& to, const Communicator&) {
    const CallOptions how(options);
    to.reduce({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), root, how);
  });
}

collectives_error collectives_group_all_to_all(collectives_group* group, const void* input, void* output, size_t count,
                                               collectives_data_type type, const collectives_options* options) {
  return added(__func__, group, {Collective::all_to_all}, [&](Group& to_group, const Communicator& comm) {
    const auto [from, to] = buffers_of_all_to_all(comm, input, output, count, type_of(type));
    to_group.all_to_all(from, to, CallOptions(options));
  });
}

collectives_error collectives_group_all_to_all_v(collectives_group* group, const void* input,
                                                 const size_t* input_counts, const size_t* input_displacements,
                                                 void* output, const size_t* output_counts,
                                                 const size_t* output_displacements, collectives_data_type type,
                                                 const collectives_options* options) {
  return added(__func__, group, {Collective::all_to_all, true}, [&](Group& to_group, const Communicator& comm) {
    const ListedBlocks from(comm, input_counts, "input_counts", input_displacements);
    const ListedBlocks to(comm, output_counts, "output_counts", output_displacements);
    to_group.all_to_all_v({input, from.elements, type_of(type)}, from.layout, {output, to.elements, type_of(type)},
                          to.layout, CallOptions(options));
  });
}

collectives_error collectives_group_gather(collectives_group* group, const void* input, void* output, size_t count,
                                           collectives_data_type type, int root, const collectives_options* options) {
  return added(__func__, group, {Collective::gather}, [&](Group& to_group, const Communicator& comm) {
    const auto [from, to] = buffers_of_gather(comm, input, output, count, type_of(type), root);
    to_group.gather(from, to, root, CallOptions(options));
  });
}

collectives_error collectives_group_scatter(collectives_group* group, const void* input, void* output, size_t count,
                                            collectives_data_type type, int root, const collectives_options* options) {
  return added(__func__, group, {Collective::scatter}, [&](Group& to_group, const Communicator& comm) {
    const auto [from, to] = buffers_of_scatter(comm, input, output, count, type_of(type), root);
    to_group.scatter(from, to, root, CallOptions(options));
  });
}

collectives_error collectives_group_gather_v(collectives_group* group, const void* input, size_t count, void* output,
                                             const size_t* counts, const size_t* displacements,
                                             collectives_data_type type, int root, const collectives_options* options) {
  return added(__func__, group, {Collective::gather, true}, [&](Group& to_group, const Communicator& comm) {
    const ListedBlocks whole = at_root(comm, root, counts, displacements);
    to_group.gather_v({input, count, type_of(type)}, {output, whole.elements, type_of(type)}, whole.layout, root,
                      CallOptions(options));
  });
}

collectives_error collectives_group_scatter_v(collectives_group* group, const void* input, const size_t* counts,
                                              const size_t* displacements, void* output, size_t count,
                                              collectives_data_type type, int root,
                                              const collectives_options* options) {
  return added(__func__, group, {Collective::scatter, true}, [&](Group& to_group, const Communicator& comm) {
    const ListedBlocks whole = at_root(comm, root, counts, displacements);
    to_group.scatter_v({input, whole.elements, type_of(type)}, {output, count, type_of(type)}, whole.layout, root,
                       CallOptions(options));
  });
}

collectives_error collectives_group_scan(collectives_group* group, const void* input, void* output, size_t count,
                                         collectives_data_type type, collectives_op op,
                                         const collectives_options* options) {
  return added(__func__, group, {Collective::scan}, [&](Group& to_group, const Communicator&) {
    const CallOptions how(options);
    to_group.scan({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_group_exclusive_scan(collectives_group* group, const void* input, void* output,
                                                   size_t count, collectives_data_type type, collectives_op op,
                                                   const collectives_options* options) {
  return added(__func__, group, {Collective::exclusive_scan}, [&](Group& to_group, const Communicator&) {
    const CallOptions how(options);
    to_group.exclusive_scan({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_group_send(collectives_group* group, const void* data, size_t count,
                                         collectives_data_type type, int to, int tag,
                                         const collectives_options* options) {
  return guarded(__func__, [&] {
    require(group, "group").group.send({data, count, type_of(type)}, to, tag, CallOptions(options));
  });
}

collectives_error collectives_group_recv(collectives_group* group, void* data, size_t count, collectives_data_type type,
                                         int from, int tag, const collectives_options* options) {
  return guarded(__func__, [&] {
    require(group, "group").group.recv({data, count, type_of(type)}, from, tag, CallOptions(options));
  });
}

collectives_error collectives_group_barrier(collectives_group* group, const collectives_options* options) {
  return added(__func__, group, {Collective::barrier},
               [&](Group& to, const Communicator&) { to.barrier(CallOptions(options)); });
}

collectives_error collectives_group_run(collectives_group* group) {
  return guarded(__func__, [&] { require(group, "group").group.run(); });
}

collectives_error collectives_group_run_async(collectives_group* group, collectives_work** work) {
  if (work != nullptr) *work = nullptr;
  return added(__func__, group, {Collective::all_reduce}, [&](Group& to, const Communicator&) {
    require(work, "work");
    auto handle = std::make_unique<collectives_work>();
    handle->work = to.run_async();
    *work = handle.release();
  });
}

void collectives_group_free(collectives_group* group) { delete group; }
