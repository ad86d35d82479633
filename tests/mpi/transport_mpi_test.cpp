// Tests of the MPI wire, which carries messages between hosts by point-to-point MPI. Under mpirun it runs the
// conformance suites of transports, and tests of its own.
#include <mpi.h>

#include <memory>
#include <numeric>

#include "collectives/error.hpp"
#include "collectives/mpi.hpp"
#include "conformance/transport_conformance.hpp"

namespace collectives::testing {
namespace {

/// Returns the MPI ranks in reverse order. Rank r of the wire is then another rank of MPI, so a confusion of the two
/// numbers fails.
std::vector<Rank> backwards(int ranks) {
  std::vector<Rank> members(static_cast<std::size_t>(ranks));
  std::iota(members.rbegin(), members.rend(), 0);
  return members;
}

struct MpiTransports {
  static int ranks() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
  }
  template <class F>
  static void run(std::size_t frame_bytes, F f) {
    MpiBootstrap bootstrap(MPI_COMM_WORLD);
    const WireFactory factory = bootstrap.wire_factory();
    const auto wire = factory.make(backwards(bootstrap.size()), (*factory.next_context)++, frame_bytes);
    End end{.rank = bootstrap.size() - 1 - bootstrap.rank(),
            .ranks = bootstrap.size(),
            .transport = *wire,
            .wire = wire.get(),
            .barrier = [] { MPI_Barrier(MPI_COMM_WORLD); }};
    try {
      f(end);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << end.rank << ": " << error.what();
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, TransportConformance, MpiTransports);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, WireConformance, MpiTransports);

TEST(TransportMpi, ContextsDoNotMix) {
  MpiBootstrap bootstrap(MPI_COMM_WORLD);
  const std::vector<Rank> members{0, 1};
  if (bootstrap.rank() < 2) {
    const auto one = bootstrap.wire_factory().make(members, 1, 64);
    const auto two = bootstrap.wire_factory().make(members, 2, 64);
    End end_one{bootstrap.rank(), 2, *one, one.get(), {}}, end_two{bootstrap.rank(), 2, *two, two.get(), {}};
    if (bootstrap.rank() == 0) {
      end_one.send(1, 1, "one");
      end_two.send(1, 2, "two");
      one->post_control(1, "control one");
      two->post_control(1, "control two");
    } else {
      EXPECT_EQ(end_two.take_control().second, "control two");
      EXPECT_EQ(end_two.take(0, 2), "two");
      EXPECT_EQ(end_one.take(0, 1), "one");
      EXPECT_EQ(end_one.take_control().second, "control one");
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(TransportMpi, FlushNamesThePeerThatDoesNotReceive) {
  constexpr std::size_t kBytes = 1 << 20;
  MpiTransports::run(kBytes, [](End& end) {
    if (end.rank == 0) {
      end.send(1, 0, payload(0, 0, kBytes));
      try {
        end.transport.flush(Deadline::in(std::chrono::milliseconds(100)));
        ADD_FAILURE() << "flushed what nobody has received";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::timeout);
        EXPECT_EQ(error.peer(), 1);
        EXPECT_NE(std::string(error.what()).find("rank 1 "), std::string::npos) << error.what();
      }
    }
    end.barrier();
    if (end.rank == 1) {
      EXPECT_TRUE(end.take(0, 0) == payload(0, 0, kBytes));
    }
  });
}

TEST(TransportMpi, DyingWithMessagesInFlightDoesNotHang) {
  constexpr std::size_t kBytes = 1 << 20;
  MpiTransports::run(kBytes, [](End& end) {
    const Rank next = (end.rank + 1) % end.ranks;
    while (end.transport.acquire_frame(next)) end.transport.send(next, 0, kBytes);
    end.wire->post_control(next, "farewell");
    end.transport.receive(next);  // may leave a receive of MPI pending
  });
}

TEST(TransportMpi, ContextBeyondTheTagsIsUnsupported) {
  MpiBootstrap bootstrap(MPI_COMM_WORLD);
  try {
    bootstrap.wire_factory().make({0}, std::size_t{1} << 40, 64);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::unsupported);
  }
}

}  // namespace
}  // namespace collectives::testing
