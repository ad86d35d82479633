// Two processes with a fake GPU each, for tests of ranks that open GPU memory of another process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>

#include "collectives/communicator.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "support/child.hpp"
#include "support/line_bootstrap.hpp"

namespace collectives::testing {

class DeviceProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "both sides of a fork start threads";
#endif
  }
  /// Runs `f(FakeGpus&, Communicator&)`, which may throw, in both processes. Returns the exit status of the child.
  template <class F>
  static int run(F&& f) {
    const auto rank = [&](Rank self, Line& line) {
      LineBootstrap bootstrap(self, line);
      FakeGpus gpus(2);
      FakeGpus::set_current(self);
      {
        Communicator comm(bootstrap, {.timeout = std::chrono::seconds(60), .tuning = Tuning{}});
        f(gpus, comm);
      }
      expect(gpus.allocations() == 0 && gpus.streams() == 0, "something is left open");
    };
    Child child([&](Line& line) {
      rank(1, line);
      return 0;
    });
    rank(0, child.line());
    return child.wait();
  }
  static void expect(bool right, const std::string& what) {
    if (!right) throw std::runtime_error(what);
  }
};

}  // namespace collectives::testing
