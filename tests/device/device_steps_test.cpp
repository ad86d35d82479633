// Tests of the device path `steps`, one of the ways to handle buffers in GPU memory. GPUs perform the same plan (the
// algorithm of a call) as for CPU memory, Step by Step (device/step_path.hpp). A Step is one action of a rank, such as
// to add a message to its values and to send the result.
//
// The tests run the conformance suite of transports on messages between GPUs. They check that every plan gives the same
// bits as on the CPU, and count copies. They also check ranks that are processes, and failures during a call.
// device_backend_test tests the results of every collective.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "communicator/operation.hpp"
#include "conformance/transport_conformance.hpp"
#include "device/step_path.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "planning/device_path_choice.hpp"
#include "support/arenas.hpp"
#include "support/device_processes.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

// ---- conformance suite of transports ----

struct GpuTransports {
  static int ranks() { return 3; }
  template <class F>
  static void run(std::size_t frame_bytes, F f) {
    FakeGpus gpus(2);
    gpus.let_the_host_in();
    const ArenaShape shape{.ranks = ranks(), .inline_bytes = 64, .chunk_bytes = 64, .frame_bytes = 64};
    run_on_arenas(shape, [&](const Arena& arena, const std::function<void()>& barrier) {
      FakeGpus::set_current(arena.self() % 2);
      const auto device = gpus.device();
      GpuPeers peers(*device, arena);
      SharedMemoryTransport notices(arena, "local");
      const RankView view(Topology::from_hosts({"a", "a", "a"}, 4), arena.self());
      GpuMessages transport(*device, peers, view, notices, nullptr);
      transport.begin(frame_bytes);
      End end{.rank = arena.self(), .ranks = ranks(), .transport = transport, .wire = nullptr, .barrier = barrier};
      f(end);
      barrier();  // keeps this rank's frames until all ranks have finished
    });
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, TransportConformance, GpuTransports);

TEST(GpuMessages, ABufferSentInPlaceIsLentUntilItsMessageIsReleased) {
  std::byte* there = nullptr;
  GpuTransports::run(64, [&](End& end) {
    if (end.rank == 0) there = end.acquire_frame(2);  // the frame is memory of this rank's GPU
    end.barrier();
    if (end.rank == 0) {
      EXPECT_FALSE(end.transport.sending());
      end.transport.send_from(1, 7, there, 16);
      EXPECT_TRUE(end.transport.lent(there, 1) && end.transport.lent(there + 15, 100));
      EXPECT_FALSE(end.transport.lent(there + 16, 100));
      EXPECT_TRUE(end.transport.sending());
    }
    end.barrier();
    if (end.rank == 1) {
      EXPECT_EQ(end.receive(0).data, there);
      end.transport.release(0);
    }
    end.barrier();
    if (end.rank == 0) {
      EXPECT_FALSE(end.transport.lent(there, 16));
      EXPECT_FALSE(end.transport.sending());
    }
  });
}

/// A wire that sends slowly: it still reads the memory of a sent message until the test removes it from `reads`.
class SlowWire final : public Wire {
 public:
  std::string_view name() const noexcept override { return "slow"; }
  std::size_t frame_bytes() const noexcept override { return 64; }
  std::byte* acquire_frame(Rank) override { return frame; }
  void send(Rank, std::uint64_t, std::size_t) override {}
  void send_from(Rank, std::uint64_t, const std::byte* data, std::size_t) override { reads.push_back(data); }
  const Message* receive(Rank) override { return nullptr; }
  void release(Rank) override {}
  bool lent(const std::byte* data, std::size_t bytes) const noexcept override {
    return std::ranges::any_of(reads, [&](const std::byte* one) { return one >= data && one < data + bytes; });
  }
  bool sending() override { return !reads.empty(); }
  void flush(Deadline) override {}
  void post_control(Rank, std::string_view) override {}
  std::optional<std::pair<Rank, std::string>> poll_control() override { return std::nullopt; }

  std::byte frame[64]{};
  std::vector<const std::byte*> reads;
};

TEST(GpuMessages, APinnedFrameThatTheWireStillReadsIsNotWrittenTo) {
  FakeGpus gpus;
  const auto arena = Arena::create({.ranks = 1, .inline_bytes = 64, .chunk_bytes = 64, .frame_bytes = 64});
  const auto device = gpus.device();
  GpuPeers peers(*device, *arena);
  SharedMemoryTransport notices(*arena, "local");
  const RankView view(Topology::from_hosts({"a", "b"}, 4), 0);
  SlowWire wire;
  GpuMessages messages(*device, peers, view, notices, &wire);
  messages.begin(64);
  std::vector<std::byte*> frames;
  for (int i = 0; i < wire.frames(); ++i) {
    frames.push_back(messages.acquire_frame(1));
    ASSERT_NE(frames.back(), nullptr);
    messages.send(1, 7, 64);
  }
  EXPECT_NE(frames[0], frames[1]);
  EXPECT_EQ(wire.reads[0], frames[0]);
  EXPECT_FALSE(messages.has_frame(1));
  EXPECT_EQ(messages.acquire_frame(1), nullptr);
  EXPECT_TRUE(messages.sending());
  wire.reads.erase(wire.reads.begin());
  EXPECT_EQ(messages.acquire_frame(1), frames[0]);
}

// ---- the same bits as on the CPU ----

#if defined(__SANITIZE_THREAD__)  // fewer elements, because a call takes ten times as long with the thread sanitizer
constexpr std::size_t kLong = 300'001;
#else
// Elements of a long vector: 16 MB of floats, which are sent in several rounds.
constexpr std::size_t kLong = 4'000'001;
#endif
constexpr std::size_t kCount = 1000;

class DeviceSteps : public ::testing::Test {
 protected:
  FakeGpus gpus{2, true};

  static Plan plan_of(Communicator& comm, Collective collective, std::size_t count, std::string_view backend) {
    return comm.plan(collective, count, DataType::f32, ReduceOp::sum, {.backend = backend, .stream = nullptr});
  }
};

/// Checks that the collectives other than all-reduce give the same bits on the GPU as on the CPU.
void collectives_have_the_hosts_bits(FakeGpus& gpus, Communicator& comm, const char* backend, std::size_t count) {
  const Options options{.backend = backend};
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::size_t each = count / ranks;
  const std::vector<float> mine = uneven(comm.rank(), each * ranks);
  const OnGpu<float> in(gpus, mine), out(gpus, each * ranks);
  const Buffer in_part{in.data(), each, DataType::f32}, out_part{out.data(), each, DataType::f32};
  std::vector<float> host(each * ranks, 0);
  const auto like_the_host = [&](std::size_t elements) {
    std::vector<float> values = out.values();
    values.resize(elements);
    host.resize(elements);
    EXPECT_TRUE(same_bits(values, host)) << backend << ", " << count;
    host.assign(each * ranks, 0);
  };
  comm.reduce_scatter(std::span<const float>(mine), std::span(host).first(each), ReduceOp::sum, options);
  comm.reduce_scatter(in.buffer(), out_part, ReduceOp::sum, options);
  like_the_host(each);
  comm.all_gather(std::span<const float>(mine).first(each), std::span(host), options);
  comm.all_gather(in_part, out.buffer(), options);
  like_the_host(each * ranks);
  if (comm.rank() == 1) host = mine;
  comm.broadcast(std::span(host), 1, options);
  out.set(mine);
  comm.broadcast(out.buffer(), 1, options);
  like_the_host(each * ranks);
  comm.reduce(std::span<const float>(mine), std::span(host), ReduceOp::average, 2, options);
  comm.reduce(in.buffer(), out.buffer(), ReduceOp::average, 2, options);
  if (comm.rank() == 2) like_the_host(each * ranks);
}

class DeviceStepsBy : public DeviceSteps, public ::testing::WithParamInterface<const char*> {
 protected:
  void have_the_hosts_bits(Communicator& comm, std::size_t longest);
};

void DeviceStepsBy::have_the_hosts_bits(Communicator& comm, std::size_t longest) {
  const Options options{.backend = GetParam()};
  for (const std::size_t count : {std::size_t{17}, longest}) {
    EXPECT_EQ(plan_of(comm, Collective::all_reduce, count, GetParam()).device_path, DevicePath::steps);
    const std::vector<float> mine = uneven(comm.rank(), count);
    const OnGpu<float> in(gpus, mine), out(gpus, count);

    std::vector<float> host = mine;
    comm.all_reduce(host, ReduceOp::average, options);
    comm.all_reduce(in.buffer(), out.buffer(), ReduceOp::average, options);
    EXPECT_TRUE(same_bits(out.values(), host)) << count;
    EXPECT_TRUE(same_bits(in.values(), mine)) << count;
    out.set(mine);
    comm.all_reduce(out.buffer(), ReduceOp::average, options);
    EXPECT_TRUE(same_bits(out.values(), host)) << count;

    Options fixed = options;
    fixed.deterministic = true;
    host = mine;
    comm.all_reduce(host, ReduceOp::sum, fixed);
    comm.all_reduce(in.buffer(), out.buffer(), ReduceOp::sum, fixed);
    EXPECT_TRUE(same_bits(out.values(), host)) << count;

    collectives_have_the_hosts_bits(gpus, comm, GetParam(), count);
  }
}

TEST_P(DeviceStepsBy, HaveTheHostsBits) {
  run_communicators(3, [&](Communicator& comm) { have_the_hosts_bits(comm, kLong); }, {.timeout = 60s});
}

/// Tests plans whose messages between hosts pass through pinned memory, in several rounds.
TEST_P(DeviceStepsBy, HaveTheHostsBitsOnSeveralHosts) {
  run_hosts({0, 0, 1, 0, 1}, [&](Communicator& comm) { have_the_hosts_bits(comm, kLong / 4); }, {.timeout = 60s});
}

/// Tests plans in which an intra-host collective, performed by all ranks of a host together, lies between messages.
TEST_F(DeviceSteps, OfHostsHaveTheirBits) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 1, 0, 1}, std::vector<int>{0, 0, 1, 1, 2, 2}})
    run_hosts(hosts,
              [&](Communicator& comm) {
                for (const char* backend : {"auto", "hierarchical"})
                  for (const std::size_t count : {std::size_t{17}, kLong / 4}) {
                    EXPECT_EQ(plan_of(comm, Collective::all_gather, count, backend).device_path, DevicePath::steps);
                    collectives_have_the_hosts_bits(gpus, comm, backend, count);
                    std::vector<bfloat16> host;
                    for (const float value : uneven(comm.rank(), count)) host.emplace_back(value);
                    const OnGpu<bfloat16> data(gpus, host);
                    comm.all_reduce(host, ReduceOp::sum, {.backend = backend});
                    comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = backend});
                    EXPECT_TRUE(same_bits(data.values(), host)) << backend << ", " << count;
                  }
              },
              {.timeout = 60s});
}

TEST_P(DeviceStepsBy, SixteenBitFloatsAreSummedByTheirOwners) {
  run_communicators(3,
                    [&](Communicator& comm) {
                      std::vector<bfloat16> host;
                      for (const float value : uneven(comm.rank(), kLong / 3)) host.emplace_back(value);
                      const OnGpu<bfloat16> data(gpus, host);
                      comm.all_reduce(host, ReduceOp::sum, {.backend = GetParam()});
                      comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = GetParam()});
                      EXPECT_TRUE(same_bits(data.values(), host));
                    },
                    {.timeout = 60s});
}

TEST_P(DeviceStepsBy, ARootKeepsWhatItSendsUntilAllHaveIt) {
  run_communicators(3,
                    [&](Communicator& comm) {
                      const OnGpu<float> data(gpus, kLong);
                      for (Rank root = 0; root < 3; ++root) {
                        data.set(input_of<float>(comm.rank(), kLong));
                        comm.broadcast(data.buffer(), root, {.backend = GetParam()});
                        const std::vector<float> here = data.values();
                        data.set(std::vector<float>(kLong, -1));  // no peer reads the buffer any more
                        EXPECT_TRUE(same_bits(here, input_of<float>(root, kLong))) << root;
                      }
                    },
                    {.timeout = 60s});
}

INSTANTIATE_TEST_SUITE_P(, DeviceStepsBy, ::testing::Values("ring", "reduce_to_one_direct", "reduce_to_one_tree"));

// ---- numbers of copies and kernels ----

/// Every byte of a message is read once from the sender's GPU: by the kernel that adds it, or by the copy that stores
/// it.
TEST_F(DeviceSteps, MessagesAreReadInPlace) {
  run_communicators(3,
                    [&](Communicator& comm) {
                      const OnGpu<float> in(gpus, input_of<float>(comm.rank(), kCount)), out(gpus, kCount);
                      for (int lap = 0; lap < 2; ++lap) {
                        comm.barrier();
                        const std::size_t kernels = gpus.kernels(), copies = gpus.copies();
                        comm.barrier();
                        comm.all_reduce(in.buffer(), out.buffer(), ReduceOp::sum, {.backend = "ring"});
                        comm.barrier();
                        EXPECT_EQ(gpus.kernels() - kernels, 3u * 2u);
                        EXPECT_EQ(gpus.copies() - copies, 3u * 2u);
                        comm.barrier();
                      }
                      EXPECT_EQ(out.values(), sum_of<float>(3, kCount));
                    },
                    {.timeout = 60s});
}

TEST_F(DeviceSteps, AreCountedAsTheHostsAre) {
  run_hosts({0, 0, 1, 1},
            [&](Communicator& comm) {
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), kCount));
              std::vector<float> host(kCount);
              const auto sent = [&](auto&& call) {
                const auto all = comm.bytes_sent(), far = comm.bytes_sent_to_other_hosts();
                call();
                return std::pair(comm.bytes_sent() - all, comm.bytes_sent_to_other_hosts() - far);
              };
              for (const char* backend : {"ring", "reduce_to_one"}) {
                const Options options{.backend = backend};
                const auto by_host = sent([&] { comm.all_reduce(host, ReduceOp::sum, options); });
                EXPECT_EQ(sent([&] { comm.all_reduce(data.buffer(), ReduceOp::sum, options); }), by_host) << backend;
                EXPECT_GT(by_host.first, 0u);
              }
            },
            {.timeout = 60s});
}

TEST_F(DeviceSteps, AreLongOnesOnGpusAndShorterWhereTheyArePassedOn) {
  run_communicators(2,
                    [&](Communicator& comm) {
                      const Plan ring = plan_of(comm, Collective::all_reduce, 16 << 20, "ring");
                      EXPECT_EQ(ring.segment * 4, 4u << 20);
                      EXPECT_EQ(ring.rounds, 8u);
                      const Plan chain = plan_of(comm, Collective::broadcast, 4 << 20, "ring");
                      EXPECT_EQ(chain.segment * 4, 2u << 20);
                      EXPECT_EQ(chain.rounds, 8u);
                      EXPECT_EQ(plan_of(comm, Collective::broadcast, 17, "ring").rounds, 1u);
                      EXPECT_SAYS(comm.explain(Collective::all_reduce, 16 << 20, DataType::f32, ReduceOp::sum,
                                               {.backend = "ring", .stream = nullptr}),
                                  "ring, 8 rounds of segments of 4 MiB");
                    },
                    {.timeout = 60s});
}

TEST(DevicePaths, PassMessagesIfTheGpusHavePeerAccess) {
  Topology host = Topology::from_hosts({"a", "a", "a"}, 4);
  host.gpus = {.everywhere = true, .peer_access = true};
  const auto plan = [](Request request, const Topology& topology) {
    request.memory = Memory::device;
    request.count = kCount;
    return choose_plan(request, topology, Tuning{});
  };
  const auto why_not = [&](const Request& request, const Topology& topology) {
    const Plan chosen = plan(request, topology);
    EXPECT_EQ(chosen.device_path, DevicePath::host_copy);
    return chosen.device_path_reason;
  };
  EXPECT_EQ(plan({.backend = "ring"}, host).device_path, DevicePath::steps);
  EXPECT_EQ(plan({.backend = "reduce_to_one"}, host).device_path, DevicePath::steps);
  EXPECT_EQ(plan({.backend = "reduce_to_one_tree"}, host).device_path, DevicePath::steps);
  EXPECT_EQ(plan({.backend = "hierarchical"}, host).device_path, DevicePath::kernels);
  const UserOp op{"mine", [](const void*, void*, std::size_t, DataType) {}, true};
  EXPECT_EQ(why_not({.op = ReduceOp::user(op), .backend = "ring"}, host),
            "ring passes messages, and the op is a function of the host");
  EXPECT_EQ(why_not({.backend = "ring", .codec = find_codec("bf16"), .force = true}, host),
            "ring passes messages, and bf16 is coded on the host");
  Topology many = Topology::from_hosts(std::vector<std::string>(57, "a"), 4);
  many.gpus = host.gpus;
  EXPECT_EQ(why_not({.backend = "ring"}, many), "ring passes messages, and a GPU shows messages to 56 ranks at most");
  std::vector<std::string> names(200, "a");
  std::fill_n(names.begin(), 100, "b");
  Topology hundreds = Topology::from_hosts(names, 4);
  hundreds.gpus = host.gpus;
  EXPECT_EQ(why_not({.collective = Collective::reduce_scatter, .backend = "hierarchical_leaders_halving"}, hundreds),
            "there are several hosts, and a GPU shows messages to 56 ranks at most");
  Topology two = Topology::from_hosts({"a", "a", "b"}, 4);
  two.gpus = host.gpus;
  EXPECT_EQ(plan({.backend = "ring"}, two).device_path, DevicePath::steps);
  EXPECT_EQ(why_not({.backend = "ring", .codec = find_codec("bf16"), .force = true}, two),
            "there are several hosts, and bf16 is coded on the host");
  two.gpus.peer_access = false;
  two.gpus.apart = "rank 1: no way";
  EXPECT_EQ(why_not({.backend = "ring"}, two), "there are several hosts, and rank 1: no way");
  Topology apart = Topology::from_hosts({"a", "b", "c"}, 4);
  apart.gpus = host.gpus;
  EXPECT_EQ(why_not({.backend = "ring"}, apart), "there are several hosts");
  host.gpus = {.everywhere = true, .apart = "rank 1: no way"};
  EXPECT_EQ(why_not({.backend = "ring"}, host), "ring passes messages, and rank 1: no way");
}

// ---- between processes ----

TEST_F(DeviceProcesses, PassMessages) {
  EXPECT_EQ(run([](FakeGpus& gpus, Communicator& comm) {
              for (const char* backend : {"ring", "reduce_to_one"}) {
                const Options options{.backend = backend, .stream = nullptr};
                expect(comm.plan(Collective::all_reduce, 1, DataType::f32, ReduceOp::sum, options).device_path ==
                           DevicePath::steps,
                       "not by messages");
                for (const std::size_t count : {kCount, kLong}) {
                  const OnGpu<float> in(gpus, input_of<float>(comm.rank(), count)), out(gpus, count);
                  for (int lap = 0; lap < 3; ++lap) {
                    comm.all_reduce(in.buffer(), out.buffer(), ReduceOp::sum, {.backend = backend});
                    expect(out.values() == sum_of<float>(2, count), "another sum");
                  }
                  comm.broadcast(in.buffer(), 1, {.backend = backend});
                  expect(in.values() == input_of<float>(1, count), "another root");
                  // Messages and kernels find memory by equal names.
                  comm.all_reduce(in.buffer(), out.buffer());
                }
                const OnGpu<float> pool(gpus, input_of<float>(comm.rank(), kCount));
                if (comm.rank() == 1) gpus.take_from_pool(pool.data());
                comm.all_reduce(pool.buffer(), ReduceOp::sum, {.backend = backend});
                expect(pool.values() == sum_of<float>(2, kCount), "another sum by way of a copy");
              }
            }),
            0);
}

// ---- a Step in progress ----

/// Two ranks of one process, progressed by the test: an all-reduce of two elements.
class StepInProgress : public ::testing::Test {
 protected:
  static constexpr ArenaShape kShape{.ranks = 2, .inline_bytes = 64, .chunk_bytes = 64, .frame_bytes = 64};

  StepInProgress() {
    topology_.gpus = {.everywhere = true, .peer_access = true};
    const Request request{.count = 2, .backend = "ring", .memory = Memory::device};
    planned_.plan = choose_plan(request, topology_, Tuning{});
    planned_.signature = {.collective = Collective::all_reduce, .type = DataType::f32, .count = 2};
    planned_.parts = Parts::equal({0, 2}, 2);
    for (auto* one : {&first, &second}) begin(*one);
  }
  struct OneRank {
    OneRank(FakeGpus& gpus, int number, const Arena& its, const Topology& topology)
        : arena(its),
          view(topology, number),
          notices(arena, "local"),
          data(with_current(gpus, number), std::vector<float>{1, 2}),
          device(gpus.device()),
          path(std::make_unique<StepPath>(*device, arena, std::make_shared<GpuPeers>(*device, arena), view, topology,
                                          notices, nullptr)) {}
    static FakeGpus& with_current(FakeGpus& gpus, int number) {
      FakeGpus::set_current(number);
      return gpus;
    }
    bool touches() const { return arena.block(arena.self()).remote_access.value.load() != 0; }
    const Arena& arena;
    RankView view;
    SharedMemoryTransport notices;
    OnGpu<float> data;
    std::unique_ptr<Device> device;
    std::unique_ptr<StepPath> path;
    DeviceCall call;
    Job job;
  };
  void begin(OneRank& one) {
    one.call.call = {.collective = Collective::all_reduce, .input = one.data.buffer(), .output = one.data.buffer()};
    one.job.type = DataType::f32;
    one.job.plan = &planned_.plan;
    one.job.args = {{.collective = Collective::all_reduce}, planned_.parts};
    one.job.input = one.job.output = reinterpret_cast<std::byte*>(one.data.data());
    one.job.tag = make_tag(1, 7);
    one.path->start(one.call, planned_, one.job);
  }
  /// Progresses both ranks until `one` waits for the given peer, or is done.
  PathExecutor::PathState progress(OneRank& one, OneRank& other, PathExecutor::PathState until) {
    for (;; std::this_thread::sleep_for(1ms)) {
      if (const auto state = one.path->progress(); state == until || state == PathExecutor::PathState::done)
        return state;
      other.path->progress();
    }
  }

  FakeGpus gpus{2};
  Topology topology_ = Topology::from_hosts({"a", "a"}, 4);
  const std::unique_ptr<Arena> arena = Arena::create(kShape), joined = Arena::join(arena->handle(), kShape, 1);
  OneRank first{gpus, 0, *arena, topology_}, second{gpus, 1, *joined, topology_};
  PlannedCall planned_;
};

TEST_F(StepInProgress, TouchesTheOthersMemoryUntilItsStepIsDone) {
  gpus.stop(1);
  EXPECT_EQ(second.path->progress(), PathExecutor::PathState::gpu);
  EXPECT_TRUE(second.touches());
  EXPECT_EQ(progress(first, second, PathExecutor::PathState::peers), PathExecutor::PathState::peers);
  EXPECT_FALSE(first.touches());
  second.path->abandon();
  EXPECT_TRUE(second.touches());
  gpus.resume(1);
  bool first_done = false, second_done = false;
  while (!first_done || !second_done) {
    first_done = first_done || first.path->progress() == PathExecutor::PathState::done;
    second_done = second_done || second.path->progress() == PathExecutor::PathState::done;
  }
  EXPECT_FALSE(first.touches() || second.touches());
  EXPECT_EQ(first.data.values(), (std::vector<float>{2, 4}));
  EXPECT_EQ(second.data.values(), (std::vector<float>{2, 4}));
}

TEST_F(StepInProgress, NoStepBeginsAfterAFailure) {
  arena->abort_block().state = 2;
  for (int look = 0; look < 20; ++look, std::this_thread::sleep_for(1ms)) {
    EXPECT_EQ(first.path->progress(), PathExecutor::PathState::peers);
    EXPECT_EQ(second.path->progress(), PathExecutor::PathState::peers);
  }
  EXPECT_FALSE(first.touches() || second.touches());
  EXPECT_EQ(gpus.kernels() + gpus.copies(), 0u);
}

// ---- failures ----

TEST_F(DeviceSteps, AGpuThatStopsIsNamed) {
  gpus.allocate_when_idle(1);
  run_ranks(3, [&](Bootstrap& bootstrap) {
    const Rank rank = bootstrap.rank();
    FakeGpus::set_current(rank == 1 ? 1 : 0);
    {
      Communicator comm(bootstrap, {.backend = "ring", .timeout = 60s});
      const OnGpu<float> data(gpus, input_of<float>(rank, kCount));
      comm.all_reduce(data.buffer());
      comm.barrier();
      if (rank == 1) gpus.stop(1);
      const Options patience{.timeout = rank == 0 ? 200ms : 60s};
      const Error error = error_of([&] { comm.all_reduce(data.buffer(), ReduceOp::sum, patience); });
      EXPECT_EQ(error.code(), Errc::timeout);
      EXPECT_SAYS(error.what(), "the GPU of rank 1 has not done its part");
      if (rank == 1) gpus.resume(1);
    }
  });
}

TEST_F(DeviceSteps, AGpuThatDisappearsIsNamed) {
  run_ranks(3, [&](Bootstrap& bootstrap) {
    const Rank rank = bootstrap.rank();
    FakeGpus::set_current(rank == 1 ? 1 : 0);
    Communicator comm(bootstrap, {.backend = "reduce_to_one", .timeout = 60s});
    const OnGpu<float> data(gpus, input_of<float>(rank, kCount));
    comm.barrier();
    if (rank == 1) gpus.disappear(1);
    const Error error = error_of([&] { comm.all_reduce(data.buffer()); });
    EXPECT_EQ(error.code(), Errc::system);
    EXPECT_EQ(error.peer(), 1);
  });
}

TEST_F(DeviceSteps, ARankInAnotherCallIsNamed) {
  run_communicators(3,
                    [&](Communicator& comm) {
                      const OnGpu<float> data(gpus, kCount);
                      const std::size_t count = comm.rank() == 2 ? 7 : kCount;
                      const Error error = error_of([&] { comm.all_reduce(Buffer{data.data(), count, DataType::f32}); });
                      EXPECT_EQ(error.code(), Errc::mismatch);
                      EXPECT_SAYS(error.what(), "rank 2 passed 7 x f32");
                    },
                    {.backend = "ring", .timeout = 60s});
}

TEST_F(DeviceSteps, ARankOfAHostIsInAnotherCall) {
  run_hosts(
      {0, 0, 1, 1},
      [&](Communicator& comm) {
        const OnGpu<float> data(gpus, kCount), all(gpus, 4 * kCount);
        const std::size_t count = comm.rank() == 3 ? 7 : kCount;
        const Error error = error_of([&] {
          comm.all_gather(ConstBuffer{data.data(), count, DataType::f32}, Buffer{all.data(), 4 * count, DataType::f32});
        });
        EXPECT_EQ(error.code(), Errc::mismatch);
        EXPECT_SAYS(error.what(), "rank 3 passed 28 x f32");
      },
      {.timeout = 60s});
}

TEST_F(DeviceSteps, AGpuStopsInAStepOfItsHost) {
  run_hosts({0, 0, 1, 1},
            [&](Communicator& comm) {
              const OnGpu<float> data(gpus, input_of<float>(comm.rank(), kCount)), all(gpus, 4 * kCount);
              comm.all_gather(data.buffer(), all.buffer());
              comm.barrier();
              if (comm.rank() == 2) gpus.stop(FakeGpus::current());
              const Options patience{.timeout = comm.rank() == 3 ? 200ms : 60s};
              const Error error = error_of([&] { comm.all_gather(data.buffer(), all.buffer(), patience); });
              EXPECT_EQ(error.code(), Errc::timeout);
              if (comm.rank() == 2) gpus.resume(FakeGpus::current());
            },
            {.timeout = 60s});
}

/// Its signals have arrived, and their data is in CPU memory.
TEST_F(DeviceSteps, ARankPassesMemoryOfTheHost) {
  run_communicators(2,
                    [&](Communicator& comm) {
                      const OnGpu<float> data(gpus, kCount);
                      std::vector<float> host(kCount);
                      const Error error =
                          error_of([&] { comm.rank() == 1 ? comm.all_reduce(host) : comm.all_reduce(data.buffer()); });
                      EXPECT_EQ(error.code(), Errc::mismatch);
                      EXPECT_SAYS(error.what(), "host memory");
                    },
                    {.backend = "ring", .timeout = 60s});
}

TEST_F(DeviceSteps, EverythingIsGivenBack) {
  const auto allocations = gpus.allocations(), streams = gpus.streams();
  run_communicators(3,
                    [&](Communicator& comm) {
                      for (const std::size_t count : {kCount, kLong / 4, kCount}) {
                        const OnGpu<float> data(gpus, input_of<float>(comm.rank(), count));
                        for (const char* backend : {"ring", "reduce_to_one_tree", "auto"})
                          comm.all_reduce(data.buffer(), ReduceOp::sum, {.backend = backend});
                      }
                    },
                    {.timeout = 60s});
  EXPECT_EQ(gpus.allocations(), allocations);
  EXPECT_EQ(gpus.streams(), streams);
}

}  // namespace
}  // namespace collectives::testing
