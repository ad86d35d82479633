// Tests of c_bridge.hpp. By its functions, C++ code hands a communicator to the C interface, and converts errors to
// error codes.
#include "communicator/c_bridge.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace collectives::testing {
namespace {

TEST(CBridge, HandsOverACommunicatorMadeByTheOptions) {
  collectives_communicator_options options{};
  options.size = sizeof options;
  options.backend = "ring";
  collectives_communicator* comm = nullptr;
  const auto make = [](const CommunicatorOptions& how) {
    EXPECT_EQ(how.backend, "ring");
    return Communicator(*bootstrap_threads(1).front(), how);
  };
  ASSERT_EQ(make_c_communicator("meet", &options, &comm, make), COLLECTIVES_SUCCESS) << collectives_last_error();
  EXPECT_EQ(collectives_size(comm), 1);
  collectives_communicator_free(comm);
}

TEST(CBridge, TurnsWhatIsThrownIntoTheLastError) {
  int place = 0;
  auto* comm = reinterpret_cast<collectives_communicator*>(&place);
  const auto fails = [&](auto exception) {
    return make_c_communicator("meet", nullptr, &comm,
                               [&](const CommunicatorOptions&) -> Communicator { throw exception; });
  };
  EXPECT_EQ(fails(Error(Errc::peer_lost, "rank 2 was lost", 1, 2, "meeting")), COLLECTIVES_ERROR_PEER_LOST);
  EXPECT_EQ(comm, nullptr);
  EXPECT_STREQ(collectives_last_error(), "rank 2 was lost");
  EXPECT_EQ(collectives_last_error_rank(), 1);
  EXPECT_EQ(collectives_last_error_peer(), 2);
  EXPECT_STREQ(collectives_last_error_operation(), "meeting");
  EXPECT_EQ(fails(std::runtime_error("no way")), COLLECTIVES_ERROR_SYSTEM);
  EXPECT_STREQ(collectives_last_error(), "meet: no way");
  EXPECT_EQ(fails(17), COLLECTIVES_ERROR_SYSTEM);
  EXPECT_STREQ(collectives_last_error(), "meet: an exception that is no std::exception");
  EXPECT_EQ(fails(std::bad_alloc()), COLLECTIVES_ERROR_SYSTEM);
  EXPECT_STREQ(collectives_last_error(), "meet: out of memory");
  EXPECT_EQ(make_c_communicator("meet", nullptr, nullptr, {}), COLLECTIVES_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace collectives::testing
