// Functions of the C interface for communicators, collectives, and works. A work is the handle of an asynchronous call.
//
// Each function converts its arguments to those of the C++ interface, and calls one C++ function. Helpers such as
// called() catch exceptions. They return the error code, and store the error text for collectives_last_error().
#include "c_interface/calls.hpp"

#include <optional>
#include <utility>

#include "c_interface/call_parts.hpp"

using namespace collectives;
using namespace collectives::c;

// ---- communicators ----

collectives_error collectives::make_c_communicator(
    const char* function, const collectives_communicator_options* options, collectives_communicator** comm,
    const std::function<Communicator(const CommunicatorOptions&)>& make) noexcept {
  return made(function, comm, "comm", [&] {
    return std::unique_ptr<collectives_communicator>(new collectives_communicator{make(options_of(options))});
  });
}

collectives_error collectives_communicator_from_environment(const collectives_communicator_options* options,
                                                            collectives_communicator** comm) {
  return make_c_communicator(__func__, options, comm, Communicator::from_environment);
}

collectives_error collectives_threads_create(int ranks, collectives_threads** threads) {
  return made(__func__, threads, "threads",
              [&] { return std::make_unique<collectives_threads>(collectives_threads{bootstrap_threads(ranks)}); });
}

collectives_error collectives_communicator_from_threads(collectives_threads* threads, int rank,
                                                        const collectives_communicator_options* options,
                                                        collectives_communicator** comm) {
  return make_c_communicator(__func__, options, comm, [&](const CommunicatorOptions& how) {
    const auto& bootstraps = require(threads, "threads").bootstraps;
    if (rank < 0 || static_cast<std::size_t>(rank) >= bootstraps.size())
      throw Refused{Errc::invalid_argument,
                    "rank " + std::to_string(rank) + " of " + std::to_string(bootstraps.size()) + " threads"};
    return Communicator(*bootstraps[static_cast<std::size_t>(rank)], how);
  });
}

void collectives_threads_free(collectives_threads* threads) { delete threads; }

collectives_error collectives_split(collectives_communicator* comm, int color, int key,
                                    const collectives_communicator_options* options, collectives_communicator** part) {
  if (part != nullptr) *part = nullptr;
  return guarded(__func__, [&] {
    refusing(in(comm), {.collective = Collective::all_gather, .split = true}, [&] {
      require(part, "part");
      std::optional<Communicator> made = in(comm).split(color, key, options_of(options));
      if (made) *part = new collectives_communicator{std::move(*made)};
    });
  });
}

collectives_error collectives_create_group(collectives_communicator* comm, const int* ranks, size_t count,
                                           const char* name, const collectives_communicator_options* options,
                                           collectives_communicator** part) {
  return made(__func__, part, "part", [&] {
    Communicator of_members =
        in(comm).create_group({&require(ranks, "ranks"), count}, name == nullptr ? "" : name, options_of(options));
    return std::unique_ptr<collectives_communicator>(new collectives_communicator{std::move(of_members)});
  });
}

void collectives_communicator_free(collectives_communicator* comm) { delete comm; }

int collectives_rank(const collectives_communicator* comm) {
  return property(__func__, comm, "comm", -1, [](const auto& known) { return known.comm.rank(); });
}

int collectives_size(const collectives_communicator* comm) {
  return property(__func__, comm, "comm", -1, [](const auto& known) { return known.comm.size(); });
}

const char* collectives_transport(const collectives_communicator* comm) {
  return property(__func__, comm, "comm", static_cast<const char*>(nullptr),
                  [](const auto& known) { return known.transport.c_str(); });
}

uint64_t collectives_bytes_sent(const collectives_communicator* comm) {
  return property(__func__, comm, "comm", uint64_t{0}, [](const auto& known) { return known.comm.bytes_sent(); });
}

uint64_t collectives_bytes_sent_to_other_hosts(const collectives_communicator* comm) {
  return property(__func__, comm, "comm", uint64_t{0},
                  [](const auto& known) { return known.comm.bytes_sent_to_other_hosts(); });
}

collectives_error collectives_coding(const collectives_communicator* comm, collectives_coding_report* report) {
  return guarded(__func__, [&] { fill(report, require(comm, "comm").comm.coding()); });
}

collectives_error collectives_abort(collectives_communicator* comm, const char* reason) {
  return guarded(__func__, [&] { in(comm).abort(&require(reason, "reason")); });
}

collectives_error collectives_progress(collectives_communicator* comm) {
  return guarded(__func__, [&] { in(comm).progress(); });
}

collectives_error collectives_explain(const collectives_communicator* comm, collectives_collective collective,
                                      size_t count, collectives_data_type type, collectives_op op,
                                      const collectives_options* options, char** text) {
  return text_out(__func__, text, "text", [&] {
    const CallOptions how(options);
    return require(comm, "comm").comm.explain(collective_of(collective), count, type_of(type), how.op(op), how);
  });
}

collectives_error collectives_plan_name(const collectives_communicator* comm, collectives_collective collective,
                                        size_t count, collectives_data_type type, collectives_op op,
                                        const collectives_options* options, char** name) {
  return text_out(__func__, name, "name", [&] {
    const CallOptions how(options);
    return std::string(
        require(comm, "comm").comm.plan(collective_of(collective), count, type_of(type), how.op(op), how).name);
  });
}

// ---- collectives ----

collectives_error collectives_all_reduce(collectives_communicator* comm, const void* input, void* output, size_t count,
                                         collectives_data_type type, collectives_op op,
                                         const collectives_options* options) {
  return called(__func__, comm, {Collective::all_reduce}, [&] {
    const CallOptions how(options);
    in(comm).all_reduce({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_all_reduce_async(collectives_communicator* comm, const void* input, void* output,
                                               size_t count, collectives_data_type type, collectives_op op,
                                               const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::all_reduce}, work, [&] {
    const CallOptions how(options);
    return in(comm).all_reduce_async({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_reduce_scatter(collectives_communicator* comm, const void* input, void* output,
                                             size_t count, collectives_data_type type, collectives_op op,
                                             const collectives_options* options) {
  return called(__func__, comm, {Collective::reduce_scatter}, [&] {
    const CallOptions how(options);
    const auto [whole, mine] = equal(in(comm), count);
    in(comm).reduce_scatter({input, whole, type_of(type)}, {output, mine, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_reduce_scatter_async(collectives_communicator* comm, const void* input, void* output,
                                                   size_t count, collectives_data_type type, collectives_op op,
                                                   const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::reduce_scatter}, work, [&] {
    const CallOptions how(options);
    const auto [whole, mine] = equal(in(comm), count);
    return in(comm).reduce_scatter_async({input, whole, type_of(type)}, {output, mine, type_of(type)}, how.op(op), how);
  });
}

collectives_error collectives_reduce_scatter_v(collectives_communicator* comm, const void* input, void* output,
                                               const size_t* counts, collectives_data_type type, collectives_op op,
                                               const collectives_options* options) {
  return called(__func__, comm, {Collective::reduce_scatter, true}, [&] {
    const CallOptions how(options, true);
    const auto list = listed(in(comm), counts, how.displacements());
    const auto [whole, mine] = unequal(in(comm), list);
    in(comm).reduce_scatter_v({input, whole, type_of(type)}, {output, mine, type_of(type)}, list, how.op(op), how);
  });
}

collectives_error collectives_reduce_scatter_v_async(collectives_communicator* comm, const void* input, void* output,
                                                     const size_t* counts, collectives_data_type type,
                                                     collectives_op op, const collectives_options* options,
                                                     collectives_work** work) {
  return issued(__func__, comm, {Collective::reduce_scatter, true}, work, [&] {
    const CallOptions how(options, true);
    const auto list = listed(in(comm), counts, how.displacements());
    const auto [whole, mine] = unequal(in(comm), list);
    return in(comm).reduce_scatter_v_async({input, whole, type_of(type)}, {output, mine, type_of(type)}, list,
                                           how.op(op), how);
  });
}

collectives_error collectives_all_gather(collectives_communicator* comm, const void* input, void* output, size_t count,
                                         collectives_data_type type, const collectives_options* options) {
  return called(__func__, comm, {Collective::all_gather}, [&] {
    const auto [whole, mine] = equal(in(comm), count);
    in(comm).all_gather({input, mine, type_of(type)}, {output, whole, type_of(type)}, CallOptions(options));
  });
}

collectives_error collectives_all_gather_async(collectives_communicator* comm, const void* input, void* output,
                                               size_t count, collectives_data_type type,
                                               const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::all_gather}, work, [&] {
    const auto [whole, mine] = equal(in(comm), count);
    return in(comm).all_gather_async({input, mine, type_of(type)}, {output, whole, type_of(type)},
                                     CallOptions(options));
  });
}

collectives_error collectives_all_gather_v(collectives_communicator* comm, const void* input, void* output,
                                           const size_t* counts, collectives_data_type type,
                                           const collectives_options* options) {
  return called(__func__, comm, {Collective::all_gather, true}, [&] {
    const CallOptions how(options, true);
    const auto list = listed(in(comm), counts, how.displacements());
    const auto [whole, mine] = unequal(in(comm), list);
    in(comm).all_gather_v({input, mine, type_of(type)}, {output, whole, type_of(type)}, list, how);
  });
}

collectives_error collectives_all_gather_v_async(collectives_communicator* comm, const void* input, void* output,
                                                 const size_t* counts, collectives_data_type type,
                                                 const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::all_gather, true}, work, [&] {
    const CallOptions how(options, true);
    const auto list = listed(in(comm), counts, how.displacements());
    const auto [whole, mine] = unequal(in(comm), list);
    return in(comm).all_gather_v_async({input, mine, type_of(type)}, {output, whole, type_of(type)}, list, how);
  });
}

collectives_error collectives_broadcast(collectives_communicator* comm, const void* input, void* output, size_t count,
                                        collectives_data_type type, int root, const collectives_options* options) {
  return called(__func__, comm, {Collective::broadcast}, [&] {
    in(comm).broadcast({input, count, type_of(type)}, {output, count, type_of(type)}, root, CallOptions(options));
  });
}

collectives_error collectives_broadcast_async(collectives_communicator* comm, const void* input, void* output,
                                              size_t count, collectives_data_type type, int root,
                                              const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::broadcast}, work, [&] {
    return in(comm).broadcast_async({input, count, type_of(type)}, {output, count, type_of(type)}, root,
                                    CallOptions(options));
  });
}

collectives_error collectives_reduce(collectives_communicator* comm, const void* input, void* output, size_t count,
                                     collectives_data_type type, collectives_op op, int root,
                                     const collectives_options* options) {
  return called(__func__, comm, {Collective::reduce}, [&] {
    const CallOptions how(options);
    in(comm).reduce({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), root, how);
  });
}

collectives_error collectives_reduce_async(collectives_communicator* comm, const void* input, void* output,
                                           size_t count, collectives_data_type type, collectives_op op, int root,
                                           const collectives_options* options, collectives_work** work) {
  return issued(__func__, comm, {Collective::reduce}, work, [&] {
    const CallOptions how(options);
    return in(comm).reduce_async({input, count, type_of(type)}, {output, count, type_of(type)}, how.op(op), root, how);
  });
}

collectives_error collectives_barrier(collectives_communicator* comm, const collectives_options* options) {
  return called(__func__, comm, {Collective::barrier}, [&] { in(comm).barrier(CallOptions(options)); });
}

collectives_error collectives_barrier_async(collectives_communicator* comm, const collectives_options* options,
                                            collectives_work** work) {
  return issued(__func__, comm, {Collective::barrier}, work,
                [&] { return in(comm).barrier_async(CallOptions(options)); });
}

// ---- works ----

collectives_error collectives_work_wait(collectives_work* work) {
  return guarded(__func__, [&] { require(work, "work").work.wait(); });
}

collectives_error collectives_work_wait_for(collectives_work* work, double seconds, int* done) {
  return guarded(__func__, [&] {
    require(done, "done") = 0;
    *done = require(work, "work").work.wait_for(duration_of(seconds, "seconds"));
  });
}

collectives_error collectives_work_test(collectives_work* work, int* done) {
  return guarded(__func__, [&] {
    require(done, "done") = 0;
    *done = require(work, "work").work.test();
  });
}

void collectives_work_free(collectives_work* work) { delete work; }
