// Implementation of Group, with which a program performs several collectives and messages together.
//
// The program adds calls, and then calls run() once. Each added collective is a member of the group. Functions that add
// a member check its arguments, but move no data. Short members with equal options, type and op form a pack. The
// library joins the vectors of a pack and performs one call on the joined vector, which costs less than many calls
// (group_pack.hpp). The function run() starts one asynchronous call for each pack, starts all messages, and waits for
// all of them.
#include <algorithm>
#include <exception>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "collectives/error.hpp"
#include "communicator/call_arguments.hpp"
#include "communicator/communicator_impl.hpp"
#include "communicator/foreign_calls.hpp"
#include "communicator/group_member.hpp"
#include "communicator/group_pack.hpp"

namespace collectives {

struct Group::Impl {
  Communicator::Impl* comm = nullptr;
  std::shared_ptr<ScratchPool> scratch;
  std::vector<GroupPack> packs;
  std::vector<CheckedMessage> messages;
  std::vector<GroupMember> members;  // all collectives and messages, in the order in which the program added them

  Rank rank() const noexcept { return comm->resources.rank(); }
  int size() const noexcept { return comm->resources.size(); }

  /// Calls work(). If work() throws an Error, publishes that this rank refuses a collective: the one that the error
  /// names, or else the first one in the list `of`. Other ranks that perform this collective then get an error.
  template <class Work>
  auto refusing(Work&& work, std::span<const GroupMember> of = {}) {
    try {
      return work();
    } catch (const Error& error) {
      const auto name = [](Collective one) { return to_string(one); };
      const auto* const found = std::ranges::find(kCollectives, error.operation(), name);
      const auto first = std::ranges::find_if(of, [](const GroupMember& one) { return one.message.empty(); });
      if (found == std::end(kCollectives) && first == of.end()) throw;
      const Call call{.collective = found != std::end(kCollectives) ? *found : first->call.collective};
      throw_refusal(error, call, comm->preparation().refuse(call, error.what()), {});
    }
  }

  /// Checks the arguments of a call, and adds the call to the group. Throws Error if the call is refused.
  void add(Call call, const Options& options) {
    comm->check_process(call.collective);
    std::exception_ptr refused;
    comm->preparation().check_member(call, options, refused);
    GroupMember member = member_of(call, rank(), size());
    if (call.memory == Memory::device && is_divided(call.collective) && is_displaced(call))
      return add_parts(call, parts_of(member), options);
    place(std::move(member), options, refused);
  }

  void add(const MessageCall& call, const Options& options) {
    comm->check_process(call.sends() ? "send" : "recv");
    messages.push_back(comm->messages.check(call, options));
    members.push_back(member_of(call));
  }

  /// Checks and adds an all-gather with a list of output tensors, or a reduce-scatter with a list of input tensors. The
  /// list `tensors` has one tensor per rank. `other_side` holds all other arguments of the call.
  void add_list(const Call& other_side, std::span<const ConstBuffer> tensors, const Options& options) {
    comm->check_process(other_side.collective);
    const bool gathers = other_side.collective == Collective::all_gather;
    std::vector<std::size_t> counts;
    Call call = refusing([&] { return call_of_list(other_side, tensors, rank(), size(), counts); });
    std::vector<Tensor> placed;  // the tensors whose memory is looked up
    for (const ConstBuffer& tensor : tensors) placed.push_back({tensor, {}});
    placed.push_back({other_side.input, other_side.output});
    call.tensors = placed;
    std::exception_ptr refused;
    comm->preparation().check_member(call, options, refused);
    call.tensors = {};
    if (call.memory == Memory::device) return add_parts(other_side, tensors, options);
    GroupMember member = member_of(call, rank(), size());
    for (std::size_t r = 0; r < tensors.size(); ++r)
      if (gathers)
        member.outputs[r] = Buffer(const_cast<void*>(tensors[r].data), tensors[r].count, tensors[r].type);
      else
        member.inputs[r] = tensors[r];
    place(std::move(member), options, refused);
  }

  /// Returns the tensors of the parts of a member: the inputs of a reduce-scatter, the outputs of an all-gather.
  static std::vector<ConstBuffer> parts_of(const GroupMember& member) {
    if (member.call.collective == Collective::reduce_scatter) return member.inputs;
    return {member.outputs.begin(), member.outputs.end()};
  }

  /// Adds one call for each tensor of a list in device memory: a broadcast for each tensor of an all-gather, a reduce
  /// for each tensor of a reduce-scatter.
  void add_parts(const Call& call, std::span<const ConstBuffer> tensors, const Options& options) {
    for (Rank root = 0; root < size(); ++root) {
      const ConstBuffer& tensor = tensors[static_cast<std::size_t>(root)];
      const bool mine = root == rank();
      if (call.collective == Collective::all_gather)
        add({.collective = Collective::broadcast,
             .input = mine ? call.input : ConstBuffer(),
             .output = Buffer(const_cast<void*>(tensor.data), tensor.count, tensor.type),
             .root = root},
            options);
      else
        add({.collective = Collective::reduce,
             .input = tensor,
             .output = mine ? call.output : Buffer(),
             .op = call.op,
             .root = root},
            options);
    }
  }

  /// Adds a member to the first pack that takes it, or to a new one.
  void place(GroupMember member, const Options& options, const std::exception_ptr& refused) {
    members.push_back(member);
    const std::size_t limit = pack_limit(comm->resources.context.topology.hosts.size());
    for (GroupPack& pack : packs)
      if (pack.takes(member, options, limit)) return pack.add(std::move(member), options.name, refused);
    packs.emplace_back(std::move(member), options, refused);
  }
};

Group::Group(Communicator& comm) : impl_(std::make_unique<Impl>()) {
  impl_->comm = comm.impl_.get();
  impl_->scratch = impl_->comm->scratch;
}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

void Group::all_reduce(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->add(reduction_of(Collective::all_reduce, input, output, op), options);
}

void Group::all_reduce(Buffer data, ReduceOp op, const Options& options) { all_reduce(data, data, op, options); }

void Group::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->add(reduction_of(Collective::reduce_scatter, input, output, op), options);
}

void Group::reduce_scatter(std::span<const ConstBuffer> inputs, Buffer output, ReduceOp op, const Options& options) {
  impl_->add_list({.collective = Collective::reduce_scatter, .output = output, .op = op}, inputs, options);
}

void Group::reduce_scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts, ReduceOp op,
                             const Options& options) {
  impl_->add(reduce_scatter_v_of(input, output, parts, op), options);
}

void Group::all_gather(ConstBuffer input, Buffer output, const Options& options) {
  impl_->add(call_of(Collective::all_gather, input, output), options);
}

void Group::all_gather(ConstBuffer input, std::span<const Buffer> outputs, const Options& options) {
  const std::vector<ConstBuffer> tensors(outputs.begin(), outputs.end());
  impl_->add_list({.collective = Collective::all_gather, .input = input}, tensors, options);
}

void Group::all_gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, const Options& options) {
  impl_->add(call_of(Collective::all_gather, input, output, parts), options);
}

void Group::broadcast(Buffer data, Rank root, const Options& options) { broadcast(data, data, root, options); }

void Group::broadcast(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  impl_->add(call_of(Collective::broadcast, input, output, root), options);
}

void Group::reduce(ConstBuffer input, Buffer output, ReduceOp op, Rank root, const Options& options) {
  impl_->add(reduction_of(Collective::reduce, input, output, op, root), options);
}

void Group::all_to_all(ConstBuffer input, Buffer output, const Options& options) {
  impl_->add(call_of(Collective::all_to_all, input, output), options);
}

void Group::all_to_all_v(ConstBuffer input, const PartLayout& input_parts, Buffer output,
                         const PartLayout& output_parts, const Options& options) {
  impl_->add(all_to_all_v_of(input, input_parts, output, output_parts), options);
}

void Group::gather(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  impl_->add(call_of(Collective::gather, input, output, root), options);
}

void Group::gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root, const Options& options) {
  impl_->add(call_of(Collective::gather, input, output, parts, root), options);
}

void Group::scatter(ConstBuffer input, Buffer output, Rank root, const Options& options) {
  impl_->add(call_of(Collective::scatter, input, output, root), options);
}

void Group::scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root, const Options& options) {
  impl_->add(call_of(Collective::scatter, input, output, parts, root), options);
}

void Group::scan(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->add(reduction_of(Collective::scan, input, output, op), options);
}

void Group::exclusive_scan(ConstBuffer input, Buffer output, ReduceOp op, const Options& options) {
  impl_->add(reduction_of(Collective::exclusive_scan, input, output, op), options);
}

void Group::send(ConstBuffer data, Rank to, int tag, const Options& options) {
  impl_->add(MessageCall::send(data, to, tag), options);
}

void Group::recv(Buffer data, Rank from, int tag, const Options& options) {
  impl_->add(MessageCall::receive(data, from, tag), options);
}

void Group::barrier(const Options& options) { impl_->add({.collective = Collective::barrier}, options); }

std::uint64_t CallRefusal::publish(Group& group, std::string_view why) const noexcept {
  auto& comm = *group.impl_->comm;
  if (comm.inherited()) return 0;
  return comm.preparation().refuse({.collective = collective, .has_counts = has_counts, .split = split}, why);
}

void Group::run() { run_async().wait(); }

Work Group::run_async() {
  impl_->comm->check_process("group");
  // The packs outlive their operations, because the function `finish` of the Work's state holds the last reference.
  const auto packs = std::make_shared<std::vector<GroupPack>>(std::move(impl_->packs));
  impl_->packs.clear();
  const std::vector<GroupMember> members = std::move(impl_->members);
  impl_->members.clear();
  const std::vector<CheckedMessage> messages = std::move(impl_->messages);
  impl_->messages.clear();
  if (!members.empty()) impl_->refusing([&] { check_apart(members, impl_->rank()); }, members);
  auto state = std::make_shared<Work::State>();
  state->finish = [packs] {
    for (GroupPack& pack : *packs) pack.finish();
  };
  state->phase = Work::State::Phase::done;  // the Work of a group has no operation of its own; each member has one
  for (GroupPack& pack : *packs) {
    Call call = impl_->refusing([&] { return pack.prepare(impl_->scratch, impl_->rank()); });
    state->members.push_back(Work(impl_->comm->issue(std::move(call), pack.options(), pack.refused())));
  }
  if (!messages.empty())
    for (auto& message : impl_->comm->messages.start_group(messages))
      state->members.push_back(Work(std::move(message)));
  return Work(std::move(state));
}

}  // namespace collectives
