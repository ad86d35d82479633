// Implementation of Group, with which a program performs several collectives and messages together.
//
// The program adds calls, and then calls run() once. Each added collective is a member of the group. Functions that add
// a member check its arguments, but move no data. Short members with equal options, type and op form a pack. The
// library joins the vectors of a pack and performs one call on the joined vector, which costs less than many calls
// (group_pack.hpp).
//
// The function run_async() starts one asynchronous call for each pack, and starts all messages. The function run()
// performs one blocking call for each pack, because a blocking call costs less. If the group has messages, buffers in
// device memory or compressors, run() waits for the result of run_async() instead.
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
#include "communicator/group_contents.hpp"
#include "communicator/group_pool.hpp"

namespace collectives {

struct COLLECTIVES_HIDDEN Group::Impl {
  explicit Impl(Communicator::Impl& of) : comm(&of), pool(of.groups) {}
  ~Impl() {
    if (contents != nullptr) pool->give_back(std::move(contents));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Communicator::Impl* const comm;
  const std::shared_ptr<GroupPool> pool;
  std::unique_ptr<GroupContents> contents;  // null: the group is empty

  GroupContents& to_fill() {
    if (contents == nullptr) contents = pool->take();
    return *contents;
  }
  Rank rank() const noexcept { return comm->resources.rank(); }
  int size() const noexcept { return comm->resources.size(); }

  /// Calls work(). If work() throws an Error, publishes that this rank refuses a collective: the one that the error
  /// names, or else that of the member `first`. Other ranks that perform this collective then get an error.
  template <class Work>
  decltype(auto) refusing(Work&& work, const GroupMember* first = nullptr) {
    try {
      return work();
    } catch (const Error& error) {
      const auto name = [](Collective one) { return to_string(one); };
      const auto* const found = std::ranges::find(kCollectives, error.operation(), name);
      Call call;
      if (found != std::end(kCollectives)) {
        call.collective = *found;
      } else {
        if (first == nullptr) throw;
        call.collective = first->call().collective;
      }
      throw_refusal(error, call, comm->preparation().refuse(call, error.what()), {});
    }
  }

  /// Checks the arguments of a call, and adds the call to the group. Throws Error if the call is refused.
  void add(Call&& call, const Options& options) {
    comm->check_process(call.collective);
    std::exception_ptr refused;
    const GroupPack* const last = to_fill().last_pack;
    // With a GPU, a buffer at another address may be in other memory.
    const bool repeats = last != nullptr && comm->resources.context.device == nullptr && last->repeats(call, options);
    comm->preparation().check_member(call, options, repeats, refused);
    if (call.memory == Memory::device && is_displaced(call)) return add_parts(call, parts_of(call), options);
    GroupMember& member = contents->members.spare();
    if (repeats) {
      member.repeat(last->last(), call.input, call.output);
      contents->last_pack->add_repeated(member);
      contents->members.add_spare();
    } else {
      member.set(call, rank(), size());
      place(member, options, refused);
    }
  }

  void add(const MessageCall& call, const Options& options) {
    comm->check_process(call.sends() ? "send" : "recv");
    to_fill().messages.push_back(comm->messages.check(call, options));
    contents->members.spare().set(call);
    contents->members.add_spare();
    contents->last_pack = nullptr;
  }

  /// Checks and adds an all-gather with a list of output tensors, or a reduce-scatter with a list of input tensors. The
  /// list `tensors` has one tensor per rank. `other_side` holds all other arguments of the call.
  void add_list(const Call& other_side, std::span<const ConstBuffer> tensors, const Options& options) {
    comm->check_process(other_side.collective);
    std::vector<std::size_t> counts;
    Call call = refusing([&] { return call_of_list(other_side, tensors, rank(), size(), counts); });
    std::vector<Tensor> placed;  // the tensors whose memory is looked up
    for (const ConstBuffer& tensor : tensors) placed.push_back({tensor, {}});
    placed.push_back({other_side.input, other_side.output});
    call.tensors = placed;
    std::exception_ptr refused;
    comm->preparation().check_member(call, options, false, refused);
    call.tensors = {};
    if (call.memory == Memory::device) return add_parts(other_side, tensors, options);
    GroupMember& member = to_fill().members.spare();
    member.set(call, tensors, rank(), size());
    place(member, options, refused);
  }

  /// Returns the displaced parts of a call: those of the input of a reduce-scatter, or of the output of an all-gather.
  static std::vector<ConstBuffer> parts_of(const Call& call) {
    const ConstBuffer whole = has_divided_input(call.collective) ? call.input : ConstBuffer(call.output);
    std::vector<ConstBuffer> parts;
    for (std::size_t r = 0; r < call.counts.size(); ++r)
      parts.emplace_back(static_cast<const std::byte*>(whole.data) + call.displacements[r] * size_of(whole.type),
                         call.counts[r], whole.type);
    return parts;
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

  /// Adds `member`, the spare object of the list of members, to the first pack that takes it, or to a new one.
  void place(const GroupMember& member, const Options& options, const std::exception_ptr& refused) {
    const std::size_t limit = pack_limit(member.call().collective, comm->resources.context.topology.hosts.size());
    const auto found = std::ranges::find_if(contents->packs,
                                            [&](const GroupPack& pack) { return pack.takes(member, options, limit); });
    if (found != contents->packs.end()) {
      found->add(member, options.name, refused);
      contents->last_pack = &*found;
    } else {
      GroupPack& added = contents->packs.spare();
      added.begin(member, options, limit, refused);
      contents->packs.add_spare();
      contents->last_pack = &added;
    }
    contents->members.add_spare();
  }

  /// Empties the group and returns what it contained. Throws Error if outputs overlap.
  std::unique_ptr<GroupContents> take_checked() {
    comm->check_process("group");
    to_fill();
    std::unique_ptr<GroupContents> taken = std::move(contents);
    const GroupMember* const first = taken->packs.empty() ? nullptr : &taken->packs[0].first();
    refusing([&] { check_apart(taken->members, rank(), taken->ranges); }, first);
    return taken;
  }

  /// Returns the call of a pack. Throws Error if there is no memory for copies.
  Call& prepared(GroupPack& pack) {
    return refusing([&]() -> Call& { return pack.prepare(pool->scratch, rank()); });
  }

  /// Starts the operations of `started`.
  Work start(std::unique_ptr<GroupContents> started) {
    // The packs outlive their operations, because the function `finish` of the Work's state holds the last reference.
    const std::shared_ptr<GroupContents> shared = std::move(started);
    auto state = std::make_shared<Work::State>();
    state->finish = [shared, pool = pool] {
      for (GroupPack& pack : shared->packs) pack.finish(pool->scratch);
    };
    state->phase = Work::State::Phase::done;  // the Work of a group has no operation of its own; each member has one
    for (GroupPack& pack : shared->packs) {
      state->members.push_back(Work(comm->issue(prepared(pack), pack.options(), pack.refused())));
      for (std::size_t i = 1; i < pack.calls(); ++i)
        state->members.push_back(Work(comm->issue(pack.repeated(i), pack.options())));
    }
    if (!shared->messages.empty())
      for (auto& message : comm->messages.start_group(shared->messages))
        state->members.push_back(Work(std::move(message)));
    return Work(std::move(state));
  }
};

Group::Group(Communicator& comm) : impl_(std::make_unique<Impl>(*comm.impl_)) {}
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

void Group::run() {
  std::unique_ptr<GroupContents> contents = impl_->take_checked();
  if (!contents->messages.empty() || !std::ranges::all_of(contents->packs, &GroupPack::is_plain))
    return impl_->start(std::move(contents)).wait();
  Communicator::Impl& comm = *impl_->comm;
  for (GroupPack& pack : contents->packs) {
    Call& first = impl_->prepared(pack);
    const OneCall::Entered entered(comm.one_call_, comm.resources.rank(), first.collective);
    comm.run_checked(first, pack.options(), false);
    for (std::size_t i = 1; i < pack.calls(); ++i) comm.run_checked(pack.repeated(i), pack.options(), true);
    pack.finish(impl_->pool->scratch);
  }
  contents->clear();
  impl_->contents = std::move(contents);  // with its memory, for the next run
}

Work Group::run_async() { return impl_->start(impl_->take_checked()); }

}  // namespace collectives
