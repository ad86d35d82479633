// Tests of MpiBootstrap, by which ranks find one another through MPI, under mpirun. MPI_Comm_split makes worlds of
// fewer ranks. A rank outside a world waits until the world ends.
#include <mpi.h>

#include "collectives/mpi.hpp"
#include "conformance/bootstrap_conformance.hpp"

namespace collectives::testing {
namespace {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

struct MpiWorlds {
  static int most_ranks() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
  }
  static constexpr bool kNamesTheMissing = false;  // a pending MPI collective does not tell which rank is missing
  template <class F>
  static void run(int ranks, F f) {
    MPI_Comm comm = MPI_COMM_NULL;
    const int rank = world_rank();
    MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &comm);
    {
      std::unique_ptr<Bootstrap> bootstrap;
      try {
        if (comm != MPI_COMM_NULL) {
          bootstrap = std::make_unique<MpiBootstrap>(comm);
          f(bootstrap);
        }
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      MPI_Barrier(MPI_COMM_WORLD);
    }
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, BootstrapConformance, MpiWorlds);

TEST(BootstrapMpi, NoCommunicatorIsInvalid) {
  const auto error = error_of([] { MpiBootstrap{MPI_COMM_NULL}; });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::invalid_argument);
}

TEST(BootstrapMpi, OneRankComesAfterTheDeadline) {
  if (MpiWorlds::most_ranks() == 1) GTEST_SKIP() << "nobody to wait for";
  MPI_Comm world = MPI_COMM_NULL, signal = MPI_COMM_NULL;  // collectives on one do not wait for the other
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  MPI_Comm_dup(MPI_COMM_WORLD, &signal);
  const bool late = world_rank() == MpiWorlds::most_ranks() - 1;
  if (!late) {
    const auto error = error_of([&] { MpiBootstrap(world, std::chrono::milliseconds(200)); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::timeout);
    EXPECT_EQ(error->rank(), world_rank());
    EXPECT_NE(std::string(error->what()).find("another rank did not come to the MPI rendezvous"), std::string::npos)
        << error->what();
  }
  MPI_Barrier(signal);
  // The other ranks have begun to duplicate `world` and given up. MPI still completes the duplication with the late
  // rank, whose next exchange then gets no answer.
  if (late) {
    const auto error = error_of([&] {
      MpiBootstrap(world, std::chrono::seconds(60)).all_gather("x", Deadline::in(std::chrono::milliseconds(200)));
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::timeout);
  }
  MPI_Barrier(signal);
  MPI_Comm_free(&signal);  // `world` is not freed, because operations on it are pending
}

TEST(BootstrapMpi, BringsWires) {
  MpiBootstrap bootstrap(MPI_COMM_WORLD);
  const WireFactory factory = bootstrap.wire_factory();
  ASSERT_TRUE(factory.make);
  ASSERT_TRUE(factory.next_context);
  const std::size_t first = (*factory.next_context)++;
  EXPECT_EQ(*bootstrap.wire_factory().next_context, first + 1) << "factories of one bootstrap count together";
}

TEST(BootstrapMpi, WireOutlivesItsBootstrap) {
  std::unique_ptr<Wire> wire;
  {
    MpiBootstrap bootstrap(MPI_COMM_WORLD);
    wire = bootstrap.wire_factory().make({bootstrap.rank()}, 0, 64);
  }
  ASSERT_NE(wire->acquire_frame(0), nullptr);
  wire->send(0, 42, 0);
  const Message* message = nullptr;
  for (const Deadline deadline = patient(); !message && !deadline.passed();) message = wire->receive(0);
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(message->tag, 42u);
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace
}  // namespace collectives::testing
