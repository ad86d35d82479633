// Conformance suite of transports, which move messages between ranks. A frame is memory that a transport lends for one
// message. A test instantiates the suite with a type that makes transports:
//
//   struct LocalTransports {
//     static int ranks();   // at least 2
//     template <class F> static void run(std::size_t frame_bytes, F f);
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Local, TransportConformance, LocalTransports);
//
// run() calls f(End&) once for each rank. The calls run at the same time, in threads of this process or in processes
// that each run the same tests. The transports carry messages of up to `frame_bytes` and end when all calls have
// returned. The second suite, WireConformance, is for transports that also carry control messages: End::wire is not
// null there.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/transport.hpp"

namespace collectives::testing {

/// One rank's end of a transport. Functions of a transport never wait, but those of an End do, for at most a minute.
struct End {
  Rank rank;
  int ranks;
  Transport& transport;
  Wire* wire;
  std::function<void()> barrier;  // a barrier of all ranks without the transport

  /// Calls `attempt` until its result is true.
  template <class F>
  static auto until(const char* what, F attempt) {
    const Deadline deadline = Deadline::in(std::chrono::minutes(1));
    // Number of yields before the first sleep, about half a millisecond. Endless yields may bring a busy machine to a
    // halt.
    constexpr int kYields = 1000;
    for (int looks = 0;; ++looks) {
      if (auto result = attempt()) return result;
      if (deadline.passed()) throw std::runtime_error(std::string("waited a minute for ") + what);
      looks < kYields ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  /// Calls until(attempt), and progresses the transport meanwhile, because the peer may wait for messages of this rank.
  template <class F>
  auto wait(const char* what, F attempt) {
    return until(what, [&] {
      transport.progress();
      return attempt();
    });
  }
  std::byte* acquire_frame(Rank to) {
    return wait("a free frame", [&] { return transport.acquire_frame(to); });
  }
  const Message& receive(Rank from) {
    return *wait("a message", [&] { return transport.receive(from); });
  }
  void send(Rank to, std::uint64_t tag, const std::string& text) {
    std::memcpy(acquire_frame(to), text.data(), text.size());
    transport.send(to, tag, text.size());
  }
  /// Returns the next message as a string. Requires that its tag is `tag`.
  std::string take(Rank from, std::uint64_t tag) {
    const Message& message = receive(from);
    EXPECT_EQ(message.tag, tag);
    const std::string text(reinterpret_cast<const char*>(message.data), message.bytes);
    transport.release(from);
    return text;
  }
  std::pair<Rank, std::string> take_control() {
    return *wait("a control message", [&] { return wire->poll_control(); });
  }
};

/// Returns `bytes` bytes that identify sender and message.
inline std::string payload(Rank from, std::uint64_t number, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) {
    text[i] = static_cast<char>((i * 31 + number * 7 + static_cast<std::size_t>(from) * 101) & 0xff);
  }
  return text;
}

template <class Transports>
class TransportConformance : public ::testing::Test {};
TYPED_TEST_SUITE_P(TransportConformance);

TYPED_TEST_P(TransportConformance, DeliversInOrder) {
  TypeParam::run(4096, [](End& end) {
    for (std::uint64_t i = 0; i < 300; ++i) {
      const std::size_t bytes = (i * 97) % 4097;
      if (end.rank == 0) end.send(1, i, payload(0, i, bytes));
      if (end.rank == 1) {
        ASSERT_TRUE(end.take(0, i) == payload(0, i, bytes)) << "message " << i;
      }
    }
  });
}

TYPED_TEST_P(TransportConformance, EmptyMessageArrives) {
  TypeParam::run(64, [](End& end) {
    if (end.rank == 0) end.send(1, 5, "");
    if (end.rank == 1) {
      EXPECT_EQ(end.take(0, 5), "");
    }
  });
}

TYPED_TEST_P(TransportConformance, FullFrameArrives) {
  for (const std::size_t frame_bytes : {std::size_t{64}, std::size_t{1000}, std::size_t{1} << 20}) {
    TypeParam::run(frame_bytes, [frame_bytes](End& end) {
      ASSERT_GE(end.transport.frame_bytes(), frame_bytes);
      const std::size_t bytes = end.transport.frame_bytes();
      for (std::uint64_t i = 0; i < 10; ++i) {
        if (end.rank == 1) end.send(0, i, payload(1, i, bytes));
        if (end.rank == 0) {
          EXPECT_TRUE(end.take(1, i) == payload(1, i, bytes));
        }
      }
    });
  }
}

TYPED_TEST_P(TransportConformance, EveryTagIsCarriedIntact) {
  TypeParam::run(64, [](End& end) {
    for (const std::uint64_t tag : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0x0123456789abcdef},
                                    std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max()}) {
      if (end.rank == 0) end.send(1, tag, "x");
      if (end.rank == 1) {
        EXPECT_EQ(end.take(0, tag), "x");
      }
    }
  });
}

TYPED_TEST_P(TransportConformance, FramesAreAlignedForVectors) {
  TypeParam::run(100, [](End& end) {
    for (int i = 0; i < 10; ++i) {
      if (end.rank == 0) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(end.acquire_frame(1)) % 64, 0u);
        end.transport.send(1, 0, 1);
      }
      if (end.rank == 1) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(end.receive(0).data) % 64, 0u);
        end.transport.release(0);
      }
    }
  });
}

TYPED_TEST_P(TransportConformance, StagingAgainLendsTheSameFrame) {
  TypeParam::run(64, [](End& end) {
    if (end.rank == 0) {
      std::byte* const frame = end.acquire_frame(1);
      std::memcpy(frame, "kept", 4);
      EXPECT_EQ(end.transport.acquire_frame(1), frame);
      end.transport.send(1, 1, 4);
    }
    if (end.rank == 1) {
      EXPECT_EQ(end.take(0, 1), "kept");
    }
  });
}

TYPED_TEST_P(TransportConformance, StagedFrameStaysTheSameWhileWhatWasSentBeforeGoes) {
  constexpr std::size_t kBytes = 256 << 10;
  TypeParam::run(kBytes, [](End& end) {
    if (end.rank == 0) {
      std::uint64_t sent = 0;
      while (std::byte* const frame = end.transport.acquire_frame(1)) {
        ASSERT_LT(sent, 10'000u) << "frames without end";
        std::memset(frame, 'x', kBytes);
        end.transport.send(1, sent++, kBytes);
      }
      end.barrier();
      for (int more = 0; more < 3; ++more) {  // so that the frame lent below is not the first one
        std::memset(end.acquire_frame(1), 'x', kBytes);
        end.transport.send(1, sent++, kBytes);
      }
      std::byte* const frame = end.acquire_frame(1);
      std::memcpy(frame, "kept", 4);
      end.barrier();
      end.transport.flush(Deadline::in(std::chrono::minutes(1)));
      EXPECT_EQ(end.transport.acquire_frame(1), frame);
      end.transport.send(1, sent, 4);
    }
    if (end.rank == 1) {
      end.barrier();
      for (int few = 0; few < 4; ++few) {
        end.receive(0);
        end.transport.release(0);
      }
      end.barrier();
      while (end.receive(0).bytes == kBytes) end.transport.release(0);
      const Message& last = end.receive(0);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(last.data), last.bytes), "kept");
      end.transport.release(0);
    }
    if (end.rank > 1) {
      end.barrier();
      end.barrier();
    }
  });
}

TYPED_TEST_P(TransportConformance, ReceivingAgainShowsTheSameMessageUntilReleased) {
  TypeParam::run(64, [](End& end) {
    if (end.rank == 0) {
      end.send(1, 1, "first");
      end.send(1, 2, "second");
    }
    if (end.rank == 1) {
      const Message first = end.receive(0);
      const Message* const again = end.transport.receive(0);
      ASSERT_NE(again, nullptr);
      EXPECT_EQ(again->data, first.data);
      EXPECT_EQ(again->tag, 1u);
      EXPECT_EQ(end.take(0, 1), "first");
      EXPECT_EQ(end.take(0, 2), "second");
    }
  });
}

TYPED_TEST_P(TransportConformance, NothingSentIsNothingReceived) {
  TypeParam::run(64, [](End& end) {
    EXPECT_EQ(end.transport.receive((end.rank + 1) % end.ranks), nullptr);
    end.barrier();
  });
}

// A peer that does not receive stops the sender without waiting and without loss. The sender continues when the peer
// receives.
TYPED_TEST_P(TransportConformance, BackPressureIsANullFrameAndEnds) {
  constexpr std::size_t kBytes = 256 << 10;
  TypeParam::run(kBytes, [](End& end) {
    std::uint64_t sent = 0;
    if (end.rank == 0) {
      while (std::byte* const frame = end.transport.acquire_frame(1)) {
        ASSERT_LT(sent, 10'000u) << "frames without end";
        const std::string text = payload(0, sent, kBytes);
        std::memcpy(frame, text.data(), kBytes);
        end.transport.send(1, sent++, kBytes);
      }
      EXPECT_GE(sent, 1u);
    }
    end.barrier();
    if (end.rank == 0) end.send(1, sent, "last");
    if (end.rank == 1) {
      std::uint64_t received = 0;
      while (end.receive(0).bytes == kBytes) {
        ASSERT_TRUE(end.take(0, received) == payload(0, received, kBytes));
        ++received;
      }
      EXPECT_EQ(end.take(0, received), "last");
    }
  });
}

TYPED_TEST_P(TransportConformance, BothDirectionsCarryMessagesTogether) {
  constexpr std::size_t kBytes = 1 << 20;
  constexpr std::uint64_t kMessages = 30;
  TypeParam::run(kBytes, [](End& end) {
    if (end.rank > 1) return;
    const Rank other = 1 - end.rank;
    std::uint64_t sent = 0, received = 0;
    end.wait("both directions to finish", [&] {
      if (sent < kMessages) {
        if (std::byte* const frame = end.transport.acquire_frame(other)) {
          const std::string text = payload(end.rank, sent, kBytes);
          std::memcpy(frame, text.data(), kBytes);
          end.transport.send(other, sent++, kBytes);
          return false;  // sends as far ahead as possible: at the end both ranks wait with unsent messages
        }
      }
      if (end.transport.receive(other)) {
        EXPECT_TRUE(end.take(other, received) == payload(other, received, kBytes));
        ++received;
      }
      return sent == kMessages && received == kMessages;
    });
    end.transport.flush(Deadline::in(std::chrono::minutes(1)));
  });
}

TYPED_TEST_P(TransportConformance, EveryRankSendsToEveryOther) {
  TypeParam::run(256, [](End& end) {
    for (std::uint64_t round = 0; round < 20; ++round) {
      for (Rank to = 0; to < end.ranks; ++to) {
        if (to != end.rank) end.send(to, round, payload(end.rank, round, 200));
      }
      for (Rank from = end.ranks - 1; from >= 0; --from) {
        if (from != end.rank) {
          ASSERT_TRUE(end.take(from, round) == payload(from, round, 200));
        }
      }
    }
  });
}

TYPED_TEST_P(TransportConformance, SlowPeerDoesNotHoldUpTheOthers) {
  if (TypeParam::ranks() < 3) GTEST_SKIP() << "needs 3 ranks";
  constexpr std::size_t kBytes = 256 << 10;
  TypeParam::run(kBytes, [](End& end) {
    std::uint64_t to_slow = 0;
    if (end.rank == 0) {
      while (end.transport.acquire_frame(1)) end.transport.send(1, to_slow++, kBytes);
      end.send(2, 7, "through");
    }
    if (end.rank == 2) {
      EXPECT_EQ(end.take(0, 7), "through");
    }
    end.barrier();
    if (end.rank == 0) end.send(1, to_slow, "last");
    if (end.rank == 1) {
      while (end.receive(0).bytes == kBytes) end.transport.release(0);
      end.transport.release(0);
    }
  });
}

TYPED_TEST_P(TransportConformance, FlushReturnsWhenPeersReceive) {
  constexpr std::size_t kBytes = 256 << 10;
  TypeParam::run(kBytes, [](End& end) {
    if (end.rank == 0) {
      end.send(1, 0, payload(0, 0, kBytes));
      EXPECT_NO_THROW(end.transport.flush(Deadline::in(std::chrono::minutes(1))));
      EXPECT_NO_THROW(end.transport.flush(Deadline::in(std::chrono::minutes(1)))) << "with nothing left to flush";
    }
    if (end.rank == 1) {
      EXPECT_TRUE(end.take(0, 0) == payload(0, 0, kBytes));
    }
  });
}

REGISTER_TYPED_TEST_SUITE_P(TransportConformance, DeliversInOrder, EmptyMessageArrives, FullFrameArrives,
                            EveryTagIsCarriedIntact, FramesAreAlignedForVectors, StagingAgainLendsTheSameFrame,
                            StagedFrameStaysTheSameWhileWhatWasSentBeforeGoes,
                            ReceivingAgainShowsTheSameMessageUntilReleased, NothingSentIsNothingReceived,
                            BackPressureIsANullFrameAndEnds, BothDirectionsCarryMessagesTogether,
                            EveryRankSendsToEveryOther, SlowPeerDoesNotHoldUpTheOthers, FlushReturnsWhenPeersReceive);

template <class Transports>
class WireConformance : public ::testing::Test {};
TYPED_TEST_SUITE_P(WireConformance);

TYPED_TEST_P(WireConformance, ControlMessagesSayWhoSentThem) {
  TypeParam::run(64, [](End& end) {
    if (end.rank != 0) {
      end.wire->post_control(0, "from " + std::to_string(end.rank));
    } else {
      std::vector<bool> heard(static_cast<std::size_t>(end.ranks));
      for (int i = 1; i < end.ranks; ++i) {
        const auto [sender, text] = end.take_control();
        EXPECT_EQ(text, "from " + std::to_string(sender));
        EXPECT_FALSE(heard.at(static_cast<std::size_t>(sender)));
        heard[static_cast<std::size_t>(sender)] = true;
      }
      EXPECT_FALSE(end.wire->poll_control());
    }
    end.barrier();
  });
}

TYPED_TEST_P(WireConformance, ControlOvertakesDataThatNobodyReceives) {
  constexpr std::size_t kBytes = 256 << 10;
  TypeParam::run(kBytes, [](End& end) {
    std::uint64_t sent = 0;
    if (end.rank == 0) {
      while (end.transport.acquire_frame(1)) end.transport.send(1, sent++, kBytes);
      end.wire->post_control(1, "stop");
    }
    if (end.rank == 1) {
      EXPECT_EQ(end.take_control(), std::make_pair(Rank{0}, std::string("stop")));
    }
    end.barrier();
    if (end.rank == 0) end.send(1, sent, "last");
    if (end.rank == 1) {
      while (end.receive(0).bytes == kBytes) end.transport.release(0);
      end.transport.release(0);
    }
  });
}

TYPED_TEST_P(WireConformance, ControlMessagesOfOneRankStayInOrder) {
  TypeParam::run(64, [](End& end) {
    for (int i = 0; i < 50; ++i) {
      if (end.rank == 0) end.wire->post_control(1, std::to_string(i));
      if (end.rank == 1) {
        EXPECT_EQ(end.take_control().second, std::to_string(i));
      }
    }
    end.barrier();
  });
}

TYPED_TEST_P(WireConformance, EmptyAndLongControlMessagesArrive) {
  TypeParam::run(64, [](End& end) {
    const std::string reason(20'000, 'r');
    if (end.rank == 0) {
      end.wire->post_control(1, "");
      end.wire->post_control(1, reason);
      end.wire->flush(Deadline::in(std::chrono::minutes(1)));
    }
    if (end.rank == 1) {
      EXPECT_EQ(end.take_control().second, "");
      EXPECT_TRUE(end.take_control().second == reason);
    }
    end.barrier();
  });
}

REGISTER_TYPED_TEST_SUITE_P(WireConformance, ControlMessagesSayWhoSentThem, ControlOvertakesDataThatNobodyReceives,
                            ControlMessagesOfOneRankStayInOrder, EmptyAndLongControlMessagesArrive);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WireConformance);

}  // namespace collectives::testing
