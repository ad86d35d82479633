// Implementation of the calls that differ, and of the four interfaces by which a rank makes them.
#include "fault/different_calls.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/collective.hpp"

namespace collectives::testing {
namespace {

using Kind = DifferentCall::Kind;

constexpr std::size_t kLong = 120'000;  // elements of the longest vector

void fold(const void* next, void* accumulated, std::size_t count, DataType /*type*/) {
  for (std::size_t i = 0; i < count; ++i) static_cast<float*>(accumulated)[i] += static_cast<const float*>(next)[i];
}
const UserOp kFirstOp{"first_op", &fold}, kSecondOp{"second_op", &fold};

std::vector<DifferentCall> make_calls() {
  std::vector<DifferentCall> all{
      {.title = "barrier", .collective = Collective::barrier},
      {.title = "all_reduce"},
      {.title = "all_reduce of one more", .count = 13},
      {.title = "all_reduce of nothing", .count = 0},
      {.title = "all_reduce of a long vector", .count = kLong},
      {.title = "all_reduce of i32", .type = DataType::i32},
      {.title = "all_reduce by max", .op = ReduceOp::max},
      {.title = "all_reduce by average", .op = ReduceOp::average},
      {.title = "all_reduce times 0.5", .op = ReduceOp::pre_scaled_sum(0.5)},
      {.title = "all_reduce times 0.25", .op = ReduceOp::pre_scaled_sum(0.25)},
      {.title = "all_reduce by one user op", .op = ReduceOp::user(kFirstOp)},
      {.title = "all_reduce by another user op", .op = ReduceOp::user(kSecondOp)},
      {.title = "all_reduce of weight", .name = "weight"},
      {.title = "all_reduce of bias", .name = "bias"},
      {.title = "all_reduce in rank order", .deterministic = true},
      {.title = "all_reduce by bf16", .codec = "bf16"},
      {.title = "all_reduce by int8", .codec = "int8"},
      {.title = "all_reduce of the 2 largest", .name = "weight", .k = 2},
      {.title = "all_reduce of the 3 largest", .name = "weight", .k = 3},
      {.title = "reduce to 0", .collective = Collective::reduce},
      {.title = "reduce to 1", .collective = Collective::reduce, .root = 1},
      {.title = "reduce by min", .collective = Collective::reduce, .op = ReduceOp::min},
      {.title = "broadcast from 0", .collective = Collective::broadcast},
      {.title = "broadcast from 1", .collective = Collective::broadcast, .root = 1},
      {.title = "broadcast of one more", .collective = Collective::broadcast, .count = 13},
      {.title = "broadcast of i32", .collective = Collective::broadcast, .type = DataType::i32},
      {.title = "broadcast of a long vector", .collective = Collective::broadcast, .count = kLong},
      {.title = "broadcast of weight", .collective = Collective::broadcast, .name = "weight"},
      {.title = "reduce_scatter", .collective = Collective::reduce_scatter},
      {.title = "reduce_scatter of rising parts", .kind = Kind::parts, .collective = Collective::reduce_scatter},
      {.title = "all_gather", .collective = Collective::all_gather},
      {.title = "all_gather of f64", .collective = Collective::all_gather, .type = DataType::f64},
      {.title = "all_gather of rising parts", .kind = Kind::parts, .collective = Collective::all_gather},
      {.title = "all_to_all", .collective = Collective::all_to_all},
      {.title = "all_to_all of f64", .collective = Collective::all_to_all, .type = DataType::f64},
      {.title = "all_to_all of equal parts", .kind = Kind::parts, .collective = Collective::all_to_all},
      {.title = "gather to 0", .collective = Collective::gather},
      {.title = "gather to 1", .collective = Collective::gather, .root = 1},
      {.title = "gather of a long vector", .collective = Collective::gather, .count = kLong},
      {.title = "gather of rising parts", .kind = Kind::parts, .collective = Collective::gather},
      {.title = "scatter from 0", .collective = Collective::scatter},
      {.title = "scatter from 1", .collective = Collective::scatter, .root = 1},
      {.title = "scatter of rising parts", .kind = Kind::parts, .collective = Collective::scatter},
      {.title = "scan", .collective = Collective::scan},
      {.title = "scan by max", .collective = Collective::scan, .op = ReduceOp::max},
      {.title = "exclusive_scan", .collective = Collective::exclusive_scan},
      {.title = "split", .kind = Kind::split, .collective = Collective::all_gather},
      {.title = "all_reduce that is refused", .kind = Kind::bad_count},
      {.title = "broadcast that is refused", .kind = Kind::bad_root, .collective = Collective::broadcast, .root = 99},
  };
  DifferentCall falling =
      *std::ranges::find(all, "reduce_scatter of rising parts",
                         &DifferentCall::title);  // GCC 12 warns of lists that initialize all fields
  falling.title = "reduce_scatter of falling parts";
  falling.falling = true;
  all.push_back(falling);
  falling.title = "all_gather of falling parts";
  falling.collective = Collective::all_gather;
  all.push_back(falling);
  DifferentCall group{.title = "group of 4 and 8", .kind = Kind::group};
  group.tensors = {4, 8};
  all.push_back(group);
  group.title = "group of 8 and 4";
  group.tensors = {8, 4};
  all.push_back(group);
  group.title = "group of weight and bias";
  group.tensors = {6, 6};
  group.names = {"weight", "bias"};
  all.push_back(group);
  group.title = "group of bias and weight";
  group.names = {"bias", "weight"};
  all.push_back(group);
  return all;
}

void check(collectives_error error) {
  if (error != COLLECTIVES_SUCCESS)
    throw Error(static_cast<Errc>(error), collectives_last_error(), collectives_last_error_rank(),
                collectives_last_error_peer(), collectives_last_error_operation());
}

void fold_in_c(void* /*context*/, const void* next, void* accumulated, std::size_t count, collectives_data_type type) {
  fold(next, accumulated, count, static_cast<DataType>(type));
}

/// Returns the op of C with the name of `op`, or null if `op` is none of the program.
const collectives_user_op* user_op_in_c(const ReduceOp& op) {
  static const auto make = [](const UserOp& of) {
    collectives_user_op* made = nullptr;
    check(collectives_user_op_create(of.name.c_str(), &fold_in_c, nullptr, 1, &made));
    return std::unique_ptr<collectives_user_op>(made);
  };
  static const auto first = make(kFirstOp), second = make(kSecondOp);
  if (op.user_op() == nullptr) return nullptr;
  return op.user_op() == &kFirstOp ? first.get() : second.get();
}

}  // namespace

std::string_view to_string(Interface interface) noexcept {
  switch (interface) {
    case Interface::blocking: return "blocking";
    case Interface::async: return "async";
    case Interface::group: return "group";
    case Interface::c: return "c";
  }
  return "";
}

const std::vector<DifferentCall>& different_calls() {
  static const std::vector<DifferentCall> calls = make_calls();
  return calls;
}

/// Arguments of a call on this rank.
struct CallMaker::Arguments {
  ConstBuffer input;
  Buffer output;
  std::vector<std::size_t> counts;
  Options options;
};

CallMaker::CallMaker(Communicator comm, Interface interface)
    : handle_{std::move(comm)}, interface_(interface), input_(kLong, 1.0), output_(kLong) {}
CallMaker::~CallMaker() = default;

CallMaker::Arguments CallMaker::arguments_of(const DifferentCall& call) {
  const auto ranks = static_cast<std::size_t>(comm().size()), self = static_cast<std::size_t>(comm().rank());
  Arguments with;
  std::size_t whole = call.count, mine = call.count / ranks;
  if (call.kind == Kind::parts) {
    with.counts.resize(ranks);
    std::iota(with.counts.begin(), with.counts.end(), std::size_t{1});
    if (call.falling) std::reverse(with.counts.begin(), with.counts.end());
    if (call.collective == Collective::all_to_all) std::ranges::fill(with.counts, (ranks + 1) / 2);
    whole = std::accumulate(with.counts.begin(), with.counts.end(), std::size_t{0});
    mine = with.counts[self];
  }
  const bool scatters = has_part_as_output(call.collective), gathers = has_part_as_input(call.collective);
  with.input = {input_.data(), gathers ? mine : whole, call.type};
  with.output = {output_.data(), scatters ? mine : whole, call.type};
  if (call.kind == Kind::bad_count) --with.output.count;
  if (call.deterministic) with.options.deterministic = true;
  with.options.name = call.name;
  if (!call.codec.empty()) with.options.wire = *find_codec(call.codec);
  with.options.force = !call.codec.empty();
  if (call.k != 0) {
    top_k_ = std::make_unique<collectives_top_k>(collectives_top_k{TopK({.k = call.k}), {}});
    with.options.compressor = &top_k_->top_k;
  }
  return with;
}

void CallMaker::make_blocking(const DifferentCall& call, const Arguments& with) {
  Communicator& comm = handle_.comm;
  const auto& [input, output, counts, options] = with;
  const bool parts = call.kind == Kind::parts;
  switch (call.collective) {
    case Collective::all_reduce: return comm.all_reduce(input, output, call.op, options);
    case Collective::reduce_scatter:
      return parts ? comm.reduce_scatter_v(input, output, counts, call.op, options)
                   : comm.reduce_scatter(input, output, call.op, options);
    case Collective::all_gather:
      return parts ? comm.all_gather_v(input, output, counts, options) : comm.all_gather(input, output, options);
    case Collective::broadcast: return comm.broadcast(input, output, call.root, options);
    case Collective::reduce: return comm.reduce(input, output, call.op, call.root, options);
    case Collective::all_to_all:
      return parts ? comm.all_to_all_v(input, counts, output, counts, options)
                   : comm.all_to_all(input, output, options);
    case Collective::gather:
      return parts ? comm.gather_v(input, output, counts, call.root, options)
                   : comm.gather(input, output, call.root, options);
    case Collective::scatter:
      return parts ? comm.scatter_v(input, output, counts, call.root, options)
                   : comm.scatter(input, output, call.root, options);
    case Collective::scan: return comm.scan(input, output, call.op, options);
    case Collective::exclusive_scan: return comm.exclusive_scan(input, output, call.op, options);
    case Collective::barrier: return comm.barrier(options);
  }
}

Work CallMaker::begin(const DifferentCall& call, const Arguments& with) {
  Communicator& comm = handle_.comm;
  const auto& [input, output, counts, options] = with;
  const bool parts = call.kind == Kind::parts;
  switch (call.collective) {
    case Collective::all_reduce: return comm.all_reduce_async(input, output, call.op, options);
    case Collective::reduce_scatter:
      return parts ? comm.reduce_scatter_v_async(input, output, counts, call.op, options)
                   : comm.reduce_scatter_async(input, output, call.op, options);
    case Collective::all_gather:
      return parts ? comm.all_gather_v_async(input, output, counts, options)
                   : comm.all_gather_async(input, output, options);
    case Collective::broadcast: return comm.broadcast_async(input, output, call.root, options);
    case Collective::reduce: return comm.reduce_async(input, output, call.op, call.root, options);
    case Collective::all_to_all:
      return parts ? comm.all_to_all_v_async(input, counts, output, counts, options)
                   : comm.all_to_all_async(input, output, options);
    case Collective::gather:
      return parts ? comm.gather_v_async(input, output, counts, call.root, options)
                   : comm.gather_async(input, output, call.root, options);
    case Collective::scatter:
      return parts ? comm.scatter_v_async(input, output, counts, call.root, options)
                   : comm.scatter_async(input, output, call.root, options);
    case Collective::scan: return comm.scan_async(input, output, call.op, options);
    case Collective::exclusive_scan: return comm.exclusive_scan_async(input, output, call.op, options);
    case Collective::barrier: return comm.barrier_async(options);
  }
  return {};
}

void CallMaker::make_group(const DifferentCall& call, const Arguments& with) {
  Group group = handle_.comm.group();
  if (call.kind != Kind::group) {
    group.all_reduce(with.input, with.output, call.op, with.options);
    return group.run();
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    Options options;
    if (!call.names.empty()) options.name = call.names[i];
    group.all_reduce({input_.data() + at, call.tensors[i], call.type},
                     {output_.data() + at, call.tensors[i], call.type}, call.op, options);
    at += call.tensors[i];
  }
  group.run();
}

void CallMaker::make_group_in_c(const DifferentCall& call, const collectives_options& options) {
  collectives_group* made = nullptr;
  check(collectives_group_create(&handle_, &made));
  const std::unique_ptr<collectives_group, decltype(&collectives_group_free)> group(made, &collectives_group_free);
  std::size_t at = 0;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    collectives_options named = options;
    const std::string name(call.names.empty() ? "" : call.names[i]);
    named.name = name.c_str();
    check(collectives_group_all_reduce(group.get(), input_.data() + at, output_.data() + at, call.tensors[i],
                                       COLLECTIVES_F32, COLLECTIVES_SUM, &named));
    at += call.tensors[i];
  }
  check(collectives_group_run(group.get()));
}

void CallMaker::make_in_c(const DifferentCall& call, const Arguments& with) {
  const std::string name(call.name), codec(call.codec);
  collectives_options options{};
  options.size = sizeof options;
  options.name = name.c_str();
  if (!codec.empty()) options.wire = codec.c_str();
  if (!codec.empty()) options.force = COLLECTIVES_ON;
  if (call.k != 0) options.compressor = top_k_.get();
  options.user_op = user_op_in_c(call.op);
  options.factor = call.op.factor();
  if (call.deterministic) options.deterministic = COLLECTIVES_ON;
  const auto type = static_cast<collectives_data_type>(call.type);
  const auto op = static_cast<collectives_op>(call.op.kind());
  const void* const in = with.input.data;
  void* const out = with.output.data;
  const std::size_t *const counts = with.counts.data(), count = with.output.count;
  const bool parts = call.kind == Kind::parts;
  // One count describes both buffers, so a count that is too large takes the place of an output that is too short.
  if (call.kind == Kind::bad_count) return check(collectives_all_reduce(&handle_, in, nullptr, 12, type, op, &options));
  if (call.kind == Kind::group) return make_group_in_c(call, options);
  switch (call.collective) {
    case Collective::all_reduce: return check(collectives_all_reduce(&handle_, in, out, count, type, op, &options));
    case Collective::reduce_scatter:
      return check(parts ? collectives_reduce_scatter_v(&handle_, in, out, counts, type, op, &options)
                         : collectives_reduce_scatter(&handle_, in, out, count, type, op, &options));
    case Collective::all_gather:
      return check(parts ? collectives_all_gather_v(&handle_, in, out, counts, type, &options)
                         : collectives_all_gather(&handle_, in, out, with.input.count, type, &options));
    case Collective::broadcast:
      return check(collectives_broadcast(&handle_, in, out, count, type, call.root, &options));
    case Collective::reduce: return check(collectives_reduce(&handle_, in, out, count, type, op, call.root, &options));
    case Collective::all_to_all:
      return check(parts ? collectives_all_to_all_v(&handle_, in, counts, nullptr, out, counts, nullptr, type, &options)
                         : collectives_all_to_all(&handle_, in, out, count / static_cast<std::size_t>(comm().size()),
                                                  type, &options));
    case Collective::gather:
      return check(
          parts ? collectives_gather_v(&handle_, in, with.input.count, out, counts, nullptr, type, call.root, &options)
                : collectives_gather(&handle_, in, out, with.input.count, type, call.root, &options));
    case Collective::scatter:
      return check(parts ? collectives_scatter_v(&handle_, in, counts, nullptr, out, count, type, call.root, &options)
                         : collectives_scatter(&handle_, in, out, count, type, call.root, &options));
    case Collective::scan: return check(collectives_scan(&handle_, in, out, count, type, op, &options));
    case Collective::exclusive_scan:
      return check(collectives_exclusive_scan(&handle_, in, out, count, type, op, &options));
    case Collective::barrier: return check(collectives_barrier(&handle_, &options));
  }
}

void CallMaker::make(const DifferentCall& call) {
  if (call.kind == Kind::split) {
    if (interface_ != Interface::c) {
      handle_.comm.split(0);
      return;
    }
    collectives_communicator* part = nullptr;
    const collectives_error error = collectives_split(&handle_, 0, 0, nullptr, &part);
    collectives_communicator_free(part);
    return check(error);
  }
  const Arguments with = arguments_of(call);
  if (interface_ == Interface::c) return make_in_c(call, with);
  if (call.kind == Kind::group) return make_group(call, with);
  if (interface_ == Interface::group && call.collective == Collective::all_reduce) return make_group(call, with);
  if (interface_ != Interface::async) return make_blocking(call, with);
  Work work = begin(call, with);
  Work later = handle_.comm.barrier_async();
  work.wait();
  later.wait();
}

void CallMaker::barrier() {
  interface_ == Interface::c ? check(collectives_barrier(&handle_, nullptr)) : comm().barrier();
}

}  // namespace collectives::testing
