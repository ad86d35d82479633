// Tests of short messages that the TCP wire sends as UDP datagrams beside its TCP stream. The test lies between the two
// ends of a link: it loses, doubles and reorders their datagrams. A message that is longer than a datagram is sent in
// pieces, one datagram each.
#include "transport/datagrams.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "transport/retransmitter.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

constexpr DatagramToken kToOne{0x746f6b656e, 1}, kToOther{0x746f6b656e, 2};  // They differ in the last bits.
constexpr DatagramLink::Tokens kLeft{.sent = kToOther, .received = kToOne}, kRight{kToOne, kToOther};
// Positions of fields in the header of a datagram, and its length, in bytes.
constexpr std::size_t kTokenBytes = 16, kBytesAt = 32, kOffsetAt = 40, kPieceAt = 44, kHeading = 48;

/// A socket on loopback with a port of its own.
tcp::Socket local_socket(int type, std::uint16_t& port) {
  tcp::Socket socket(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  EXPECT_EQ(::bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  EXPECT_EQ(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  port = ntohs(address.sin_port);
  return socket;
}

void connect_to(const tcp::Socket& socket, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  EXPECT_EQ(::connect(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

/// The two ends of a TCP connection over loopback.
struct Stream {
  tcp::Socket left, right;
};
Stream local_stream() {
  std::uint16_t port = 0;
  const tcp::Socket listener = local_socket(SOCK_STREAM, port);
  EXPECT_EQ(::listen(listener.fd(), 1), 0);
  tcp::Socket left(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  connect_to(left, port);
  return {std::move(left), tcp::Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC))};
}

/// Waits until `what` returns true, for at most a minute. Returns false if it does not.
template <class F>
bool comes(F what) {
  for (const auto begun = std::chrono::steady_clock::now(); !what(); std::this_thread::sleep_for(1ms))
    if (std::chrono::steady_clock::now() - begun > 1min) return false;
  return true;
}

/// Returns message `number` after waiting for it.
std::optional<DatagramLink::Arrived> comes_to(DatagramLink& link, std::uint32_t number) {
  std::optional<DatagramLink::Arrived> arrived;
  comes([&] { return (arrived = link.take(number)).has_value(); });
  return arrived;
}

/// Two links with the test in between. The test catches the datagrams from `left` to `right` and passes some of them.
/// It passes the answers of `right` on request.
class Datagrams : public ::testing::Test {
 protected:
  explicit Datagrams(DatagramSettings settings = {})
      : left(stream.left, kLeft, settings), right(stream.right, kRight, settings) {
    to_left_ = local_socket(SOCK_DGRAM, to_left_port_);
    to_right_ = local_socket(SOCK_DGRAM, to_right_port_);
    left.connect(stream.left, to_left_port_);
    right.connect(stream.right, to_right_port_);
    connect_to(to_left_, left.port());
    connect_to(to_right_, right.port());
    left.allow();
    right.allow();
  }

  bool send(std::uint32_t number, const std::string& text) {
    return left.send({number * 10UL, static_cast<std::uint32_t>(text.size()), number},
                     reinterpret_cast<const std::byte*>(text.data()), 0);
  }
  /// Returns the first datagram that `left` has sent and the test has not caught.
  std::string caught() { return receive(to_left_); }
  /// Returns all pieces of the first message, each after its header.
  std::vector<std::string> pieces_caught() {
    std::vector<std::string> pieces;
    for (std::uint32_t bytes = 1, offset = 0, piece = 0; offset + piece < bytes;) {
      pieces.push_back(caught());
      std::memcpy(&bytes, pieces.back().data() + kBytesAt, sizeof bytes);
      std::memcpy(&offset, pieces.back().data() + kOffsetAt, sizeof offset);
      std::memcpy(&piece, pieces.back().data() + kPieceAt, sizeof piece);
    }
    return pieces;
  }
  void let_through(const std::string& datagram) { pass(to_right_, datagram, right.socket()); }
  /// Passes the answer of `right` to `left`.
  void answer() { pass(to_left_, answered(), left.socket()); }
  std::string answered() { return receive(to_right_); }
  /// Returns the text of message `number` if `right` has received it, or "nothing".
  std::string taken(std::uint32_t number) {
    const auto arrived = right.take(number);
    if (!arrived) return "nothing";
    EXPECT_EQ(arrived->header.tag, number * 10UL);
    EXPECT_EQ(arrived->header.number, number);
    lost = arrived->lost;
    retransmitted = arrived->retransmitted;
    return {reinterpret_cast<const char*>(arrived->data), arrived->header.bytes};
  }
  /// Returns the datagrams that `left` retransmits in `ticks` ticks.
  std::vector<std::string> said_again(int ticks) {
    std::vector<std::string> said;
    for (int tick = 0; tick < ticks; ++tick)
      left.retransmit(false, [&](std::string_view text) {
        said.emplace_back(text);
        return true;
      });
    return said;
  }

  Stream stream = local_stream();
  DatagramLink left, right;
  bool lost = false, retransmitted = false;

 private:
  static std::string receive(const tcp::Socket& from) {
    pollfd comes{from.fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&comes, 1, 60'000), 1);
    std::string text(1 << 16, '\0');
    const ssize_t got = ::recv(from.fd(), text.data(), text.size(), MSG_DONTWAIT);
    text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return text;
  }
  /// Sends a datagram by the socket `to`, and returns when the receiving socket `end` holds it.
  static void pass(const tcp::Socket& to, const std::string& datagram, const tcp::Socket& end) {
    const auto held = [&end] {
      std::uint32_t memory[16] = {};  // figures of the socket; the first is SK_MEMINFO_RMEM_ALLOC, the bytes received
      socklen_t bytes = sizeof memory;
      EXPECT_EQ(::getsockopt(end.fd(), SOL_SOCKET, SO_MEMINFO, memory, &bytes), 0);
      return memory[0];
    };
    const std::uint32_t before = held();
    EXPECT_EQ(::send(to.fd(), datagram.data(), datagram.size(), 0), static_cast<ssize_t>(datagram.size()));
    for (int i = 0; held() == before && i < 60'000; ++i) std::this_thread::sleep_for(1ms);
  }

  tcp::Socket to_left_, to_right_;
  std::uint16_t to_left_port_ = 0, to_right_port_ = 0;
};

TEST_F(Datagrams, AProbeOfMaximumLengthIsReceived) {
  EXPECT_FALSE(right.heard());
  left.probe();
  EXPECT_FALSE(right.heard());
  let_through(caught());
  EXPECT_TRUE(right.heard());
}

TEST_F(Datagrams, MessageArrivesAsItWasAlignedForVectors) {
  ASSERT_TRUE(send(0, "hello"));
  let_through(caught());
  const auto arrived = right.take(0);
  ASSERT_TRUE(arrived);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(arrived->data), arrived->header.bytes), "hello");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arrived->data) % 64, 0U);
  EXPECT_FALSE(arrived->retransmitted || arrived->lost);
}

TEST_F(Datagrams, ReorderedDatagramsAreDeliveredInOrder) {
  std::vector<std::string> sent;
  for (std::uint32_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(send(i, "number " + std::to_string(i)));
    sent.push_back(caught());
  }
  for (const std::size_t i : {3U, 1U, 4U, 2U}) let_through(sent[i]);
  EXPECT_EQ(taken(0), "nothing");
  let_through(sent[0]);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(taken(i), "number " + std::to_string(i));
}

TEST_F(Datagrams, ADuplicateIsDeliveredOnce) {
  ASSERT_TRUE(send(0, "once"));
  const std::string zero = caught();
  ASSERT_TRUE(send(1, "early"));
  const std::string one = caught();
  for (const auto& datagram : {one, one, zero, zero, zero}) let_through(datagram);
  EXPECT_EQ(taken(0), "once");
  EXPECT_EQ(taken(1), "early");
  let_through(zero);
  EXPECT_EQ(taken(2), "nothing");
}

TEST_F(Datagrams, ALostDatagramIsRetransmittedOnce) {
  ASSERT_TRUE(send(0, "lost"));
  EXPECT_TRUE(said_again(1).empty()) << "before a whole tick had passed";
  const auto said = said_again(5);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(right.receive_retransmitted(said[0], 0));
  EXPECT_EQ(taken(0), "lost");
  EXPECT_TRUE(lost && retransmitted);
  let_through(caught());  // it was only late
  EXPECT_EQ(taken(1), "nothing");
}

TEST_F(Datagrams, AnUnreadDatagramIsNotCountedAsLost) {
  ASSERT_TRUE(send(0, "on time"));
  let_through(caught());
  const auto said = said_again(3);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(right.receive_retransmitted(said[0], 0));
  EXPECT_EQ(taken(0), "on time");
  EXPECT_TRUE(retransmitted);
  EXPECT_FALSE(lost);
  EXPECT_FALSE(right.receive_retransmitted(said[0], 1)) << "it had been taken";
  EXPECT_EQ(taken(1), "nothing");
}

TEST_F(Datagrams, AcknowledgedDatagramsAreNotRetransmitted) {
  ASSERT_TRUE(send(0, "zero") && send(1, "one"));
  left.acknowledged(1, false);
  const auto said = said_again(3);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(right.receive_retransmitted(said[0], 0));
  EXPECT_EQ(taken(1), "one");
}

TEST_F(Datagrams, EveryOneAcknowledgesTheOtherDirection) {
  ASSERT_TRUE(send(0, "a question"));
  let_through(caught());
  EXPECT_EQ(taken(0), "a question");
  ASSERT_TRUE(right.send({0, 0, 0}, nullptr, 1));
  answer();
  EXPECT_TRUE(left.take(0));
  EXPECT_TRUE(said_again(5).empty());
}

TEST_F(Datagrams, AWindowThatIsFullOpensWhenHalfOfItIsTaken) {
  std::uint32_t number = 0;
  for (; number < DatagramLink::kWindow; ++number) {
    ASSERT_TRUE(send(number, "some"));
    let_through(caught());
  }
  EXPECT_FALSE(send(number, "too many"));
  for (std::uint32_t i = 0; i < DatagramLink::kWindow / 2; ++i) EXPECT_EQ(taken(i), "some");
  answer();  // passes an acknowledgement
  EXPECT_TRUE(send(number, "room again"));
}

TEST_F(Datagrams, AFailedRetransmissionIsRetriedLater) {
  ASSERT_TRUE(send(0, "again"));
  for (int tick = 0; tick < 4; ++tick) EXPECT_TRUE(left.retransmit(false, [](std::string_view) { return false; }));
  EXPECT_EQ(said_again(1).size(), 1U);
  EXPECT_FALSE(left.retransmit(false, [](std::string_view) { return true; })) << "nothing is left to say";
}

TEST_F(Datagrams, ForeignAndMalformedPacketsAreDropped) {
  ASSERT_TRUE(send(0, "the real one"));
  const std::string real = caught();
  std::vector<std::string> datagrams;
  for (std::size_t byte = 0; byte < kTokenBytes; ++byte) {
    datagrams.push_back(real);
    datagrams.back()[byte] = static_cast<char>(real[byte] ^ 1);  // All 128 bits count.
  }
  for (const std::string& datagram : {real + "!", real.substr(0, real.size() - 1), real.substr(0, 31), std::string("x"),
                                      std::string(), std::string(20'000, 'y')})
    datagrams.push_back(datagram);
  for (const std::string& datagram : datagrams) {
    let_through(datagram);
    EXPECT_EQ(taken(0), "nothing");
  }
  EXPECT_EQ(right.dropped(), datagrams.size());
  EXPECT_TRUE(right.receive_retransmitted("", 0));
  EXPECT_TRUE(right.receive_retransmitted("short", 0));
  EXPECT_TRUE(right.receive_retransmitted(std::string(16, '\xff'), 0));
  EXPECT_EQ(taken(0), "nothing");
  let_through(real);
  EXPECT_EQ(taken(0), "the real one");
}

TEST_F(Datagrams, FromAnotherPortOrOfTheOtherDirectionAreDropped) {
  DatagramLink fresh(stream.right, kRight, {});
  std::uint16_t port = 0, other_port = 0;
  const tcp::Socket peer = local_socket(SOCK_DGRAM, port), other = local_socket(SOCK_DGRAM, other_port);
  for (const tcp::Socket* from : {&other, &peer}) connect_to(*from, fresh.port());
  ASSERT_TRUE(send(0, "the real one") && right.send({0, 2, 0}, reinterpret_cast<const std::byte*>("hi"), 0));
  const std::string real = caught();
  EXPECT_EQ(::send(other.fd(), real.data(), real.size(), 0), static_cast<ssize_t>(real.size()));
  fresh.connect(stream.right, port);
  for (const auto& [from, datagram] : {std::pair(&other, real), std::pair(&peer, answered())})
    EXPECT_EQ(::send(from->fd(), datagram.data(), datagram.size(), 0), static_cast<ssize_t>(datagram.size()));
  EXPECT_TRUE(comes([&] { return !fresh.take(0) && fresh.dropped() == 2; })) << "the kernel drops the third one";
  EXPECT_EQ(::send(peer.fd(), real.data(), real.size(), 0), static_cast<ssize_t>(real.size()));
  EXPECT_TRUE(comes_to(fresh, 0));
}

TEST_F(Datagrams, RetransmissionsBeyondTheWindowAreDropped) {
  for (std::uint32_t number = 1; number <= 1000; ++number) {
    const MessageHeader header{.tag = number * 10UL, .bytes = 4, .number = number};
    EXPECT_TRUE(
        right.receive_retransmitted(std::string(reinterpret_cast<const char*>(&header), sizeof header) + "text", 0));
  }
  EXPECT_EQ(taken(1), "text");
  EXPECT_EQ(taken(DatagramLink::kWindow + 1), "nothing");
}

TEST_F(Datagrams, ALossDisablesDatagramsForAWhile) {
  ASSERT_TRUE(send(0, "lost"));
  left.acknowledged(1, true);
  EXPECT_FALSE(send(1, "too soon"));
  for (const auto begun = std::chrono::steady_clock::now(); !send(1, "soon enough");) {
    ASSERT_LT(std::chrono::steady_clock::now() - begun, 1min);
    std::this_thread::sleep_for(1ms);
  }
}

// ---- messages of several packets ----

/// A text whose pieces differ from one another.
std::string long_text(std::size_t bytes, unsigned seed = 0) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>((i * 2654435761U >> 13) + seed);
  return text;
}

const std::string kLongest = long_text(DatagramLink::kLongest);

TEST_F(Datagrams, MessagesAboveTheMaximumLengthAreRefused) {
  EXPECT_TRUE(send(0, kLongest));
  EXPECT_FALSE(send(1, kLongest + "!"));
}

TEST_F(Datagrams, MessageOfSeveralPacketsIsTakenWhenItIsWhole) {
  for (std::uint32_t number = 0; const std::size_t bytes : {9'000UL, 20'000UL, DatagramLink::kLongest}) {
    SCOPED_TRACE(bytes);
    const std::string text = long_text(bytes);
    ASSERT_TRUE(send(number, text));
    const auto pieces = pieces_caught();
    ASSERT_GE(pieces.size(), 2U);
    for (const std::string& piece : pieces) {
      EXPECT_LE(piece.size(), 9'000U - 28) << "a packet";
      EXPECT_EQ(taken(number), "nothing");
      let_through(piece);
    }
    EXPECT_TRUE(taken(number) == text);
    left.acknowledged(++number, false);
  }
}

TEST_F(Datagrams, PiecesComeInAnyOrderAndTwice) {
  const std::string other = long_text(25'000, 7);
  ASSERT_TRUE(send(0, kLongest));
  const auto zero = pieces_caught();
  ASSERT_TRUE(send(1, other));
  const auto one = pieces_caught();
  ASSERT_GE(one.size(), 3U);
  for (std::size_t i = std::max(zero.size(), one.size()); i-- > 0;)
    for (const auto* pieces : {&zero, &one, &zero})
      if (i < pieces->size()) let_through((*pieces)[i]);
  EXPECT_TRUE(taken(0) == kLongest);
  EXPECT_TRUE(taken(1) == other);
  let_through(zero[0]);
  let_through(one[1]);
  EXPECT_EQ(taken(2), "nothing");
}

/// Joins datagrams as the kernel and network adapters may.
TEST_F(Datagrams, JoinedPacketsAreAcceptedInAnyOrder) {
  ASSERT_TRUE(send(0, kLongest));
  const auto zero = pieces_caught();
  ASSERT_TRUE(send(1, "short") && send(2, "") && send(3, "shorter"));
  const std::vector<std::string> others{caught(), caught(), caught()};
  const std::string other = long_text(20'000, 3);
  ASSERT_TRUE(send(4, other));
  const auto four = pieces_caught();
  const auto joined = [](const std::vector<std::string>& pieces) {
    std::string all;
    for (const std::string& piece : pieces) all += piece;
    return all;
  };
  const std::string first = zero[0], last = zero.back();
  const std::vector<std::string> middle(zero.begin() + 1, zero.end() - 1);
  for (const std::string& datagram :
       {joined(zero) + joined(others) + joined(four),                                         // each whole
        joined(others) + joined(zero) + joined(four),                                         // not the first one
        first + last, four.back() + joined(middle), four[0] + joined(others) + joined(four),  // far apart
        last + joined(middle) + joined(zero) + joined(others)}) {
    // A new link for each order.
    DatagramLink fresh(stream.right, kRight, {});
    std::uint16_t port = 0;
    const tcp::Socket sender = local_socket(SOCK_DGRAM, port);
    fresh.connect(stream.right, port);
    connect_to(sender, fresh.port());
    ASSERT_EQ(::send(sender.fd(), datagram.data(), datagram.size(), 0), static_cast<ssize_t>(datagram.size()));
    for (const auto& pieces : {middle, zero, others, four})
      for (const std::string& piece : pieces)
        ASSERT_EQ(::send(sender.fd(), piece.data(), piece.size(), 0), static_cast<ssize_t>(piece.size()));
    const std::string texts[] = {kLongest, "short", "", "shorter", other};
    for (std::uint32_t number = 0; number < 5; ++number) {
      const auto arrived = comes_to(fresh, number);
      ASSERT_TRUE(arrived) << number;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arrived->data) % 64, 0U);
      EXPECT_TRUE(std::string(reinterpret_cast<const char*>(arrived->data), arrived->header.bytes) == texts[number])
          << number;
    }
    EXPECT_FALSE(fresh.take(5));
  }
}

TEST_F(Datagrams, ALostPacketRetransmitsItsWholeMessage) {
  ASSERT_TRUE(send(0, kLongest));
  const auto pieces = pieces_caught();
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (i != 1) let_through(pieces[i]);
  EXPECT_EQ(taken(0), "nothing");
  EXPECT_TRUE(said_again(DatagramLink::kTicksOfPieces - 1).empty()) << "too soon";
  const auto said = said_again(2);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(right.receive_retransmitted(said[0], 0));
  let_through(pieces[1]);  // it was only late
  EXPECT_TRUE(taken(0) == kLongest);
  EXPECT_TRUE(lost && retransmitted);
  let_through(pieces[1]);
  EXPECT_EQ(taken(1), "nothing");
}

TEST_F(Datagrams, AWindowHoldsSoManyBytes) {
  constexpr std::uint32_t kFit = DatagramLink::kWindowBytes / DatagramLink::kLongest;
  static_assert(kFit < DatagramLink::kWindow);
  std::uint32_t number = 0;
  for (; number < kFit; ++number) {
    ASSERT_TRUE(send(number, kLongest));
    for (const std::string& piece : pieces_caught()) let_through(piece);
  }
  EXPECT_FALSE(send(number, kLongest));
  for (std::uint32_t i = 0; i < kFit / 2; ++i) EXPECT_TRUE(taken(i) == kLongest);
  answer();
  EXPECT_TRUE(send(number, kLongest));
}

TEST_F(Datagrams, MalformedFragmentsAreDropped) {
  ASSERT_TRUE(send(0, kLongest));
  const auto pieces = pieces_caught();
  const auto with = [&](std::size_t at, std::uint32_t value) {
    std::string wrong = pieces[1];
    std::memcpy(wrong.data() + at, &value, sizeof value);
    return wrong;
  };
  const auto length = static_cast<std::uint32_t>(pieces[1].size() - kHeading);
  for (const std::string& wrong :
       {with(kBytesAt, 0), with(kBytesAt, 1 << 20), with(kBytesAt, 0xffffffff), with(kOffsetAt, length + 1),
        with(kOffsetAt, 0xfffffff0), with(kOffsetAt, DatagramLink::kLongest), with(kPieceAt, 0), with(kPieceAt, 100),
        with(kPieceAt, 0xffffffff), pieces[1].substr(0, pieces[1].size() - 1), pieces[1] + "!",
        pieces[1] + pieces[2].substr(0, kHeading - 1), pieces[0] + pieces[1] + std::string(kHeading, '\0')})
    let_through(wrong);
  EXPECT_EQ(taken(0), "nothing");
  // If pieces of a message disagree on its length, the first piece counts.
  let_through(pieces[0]);
  let_through(with(kBytesAt, 30'000));
  for (const std::string& piece : pieces) let_through(piece);
  EXPECT_TRUE(taken(0) == kLongest);
}

TEST_F(Datagrams, PiecesOfAnotherLengthAreNotMistakenForMissingOnes) {
  ASSERT_TRUE(send(0, std::string(1500, 'a')));
  const std::string whole = caught();
  const auto piece = [&](std::uint32_t offset, std::uint32_t length) {
    std::string cut = whole.substr(0, kHeading) + whole.substr(kHeading + offset, length);
    std::memcpy(cut.data() + kOffsetAt, &offset, sizeof offset);
    std::memcpy(cut.data() + kPieceAt, &length, sizeof length);
    return cut;
  };
  let_through(piece(0, 1000));
  let_through(piece(500, 500));
  EXPECT_EQ(taken(0), "nothing");
  let_through(whole);
  EXPECT_EQ(taken(0), "nothing") << "of one message in two lengths the first counts";
  let_through(piece(1000, 1000).substr(0, kHeading + 500));
  EXPECT_EQ(taken(0), std::string(1500, 'a'));
}

TEST_F(Datagrams, DatagramsBeyondTheWindowAreDropped) {
  ASSERT_TRUE(send(0, "some"));
  const std::string some = caught();
  const auto numbered = [&](std::uint32_t number) {
    std::string other = some;
    constexpr std::size_t kTagAt = 24, kNumberAt = 36;
    const std::uint64_t tag = number * 10UL;
    std::memcpy(other.data() + kTagAt, &tag, sizeof tag);
    std::memcpy(other.data() + kNumberAt, &number, sizeof number);
    return other;
  };
  for (std::uint32_t number = 1; number <= 2 * DatagramLink::kWindow; ++number) let_through(numbered(number));
  EXPECT_EQ(taken(0), "nothing");
  let_through(numbered(0));
  EXPECT_EQ(taken(1), "some");
  EXPECT_EQ(taken(2), "some");
  EXPECT_EQ(taken(DatagramLink::kWindow + 1), "nothing");
}

TEST_F(Datagrams, LongMessagesWithoutReplyAreAcknowledgedOneByOne) {
  for (std::uint32_t number = 0; number < 6; ++number) {
    ASSERT_TRUE(send(number, kLongest)) << number;
    for (const std::string& piece : pieces_caught()) let_through(piece);
    EXPECT_TRUE(taken(number) == kLongest);
    if (number > 0) answer();
  }
  EXPECT_TRUE(said_again(10).empty());
}

TEST_F(Datagrams, ALostLongMessageDisablesLongDatagramsOnly) {
  ASSERT_TRUE(send(0, kLongest));
  left.acknowledged(1, true);
  EXPECT_FALSE(send(1, kLongest));
  EXPECT_TRUE(send(1, "short"));
  left.acknowledged(2, true);
  EXPECT_FALSE(send(2, "short"));
}

/// A stream between IPv6 addresses. `text` is the address. Without IPv6 the sockets are missing.
Stream stream_of_six(const char* text) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  EXPECT_EQ(::inet_pton(AF_INET6, text, &address.sin6_addr), 1);
  const tcp::Socket listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Stream stream;
  stream.left = tcp::Socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.fd() < 0 || stream.left.fd() < 0) return stream;
  tcp::set_option(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  tcp::set_option(stream.left, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  socklen_t bytes = sizeof address;
  if (::bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 || ::listen(listener.fd(), 1) != 0 ||
      ::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      ::connect(stream.left.fd(), reinterpret_cast<sockaddr*>(&address), bytes) != 0)
    return stream;
  stream.right = tcp::Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  return stream;
}

int family_of(const tcp::Socket& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  EXPECT_EQ(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  return address.ss_family;
}

/// Sends messages of every length directly between the links. The kernel may split datagrams and join them again.
void expect_every_length_between(const Stream& stream, int family) {
  DatagramLink left(stream.left, kLeft, {}), right(stream.right, kRight, {});
  EXPECT_EQ(family_of(left.socket()), family);
  left.connect(stream.left, right.port());
  right.connect(stream.right, left.port());
  left.allow();
  right.allow();
  std::uint32_t number = 0;
  for (std::size_t bytes = 0; bytes <= DatagramLink::kLongest; bytes += bytes < 100 ? 1 : bytes / 7) {
    const std::string text = long_text(bytes, static_cast<unsigned>(bytes));
    for (DatagramLink* const from : {&left, &right}) {
      DatagramLink& to = from == &left ? right : left;
      ASSERT_TRUE(from->send({bytes, static_cast<std::uint32_t>(bytes), number},
                             reinterpret_cast<const std::byte*>(text.data()), from == &left ? number : number + 1));
      const auto arrived = comes_to(to, number);
      ASSERT_TRUE(arrived) << bytes;
      ASSERT_TRUE(std::string(reinterpret_cast<const char*>(arrived->data), arrived->header.bytes) == text) << bytes;
    }
    ++number;
  }
}

TEST(DatagramsOfLoopback, EveryLengthComesAsItWas) { expect_every_length_between(local_stream(), AF_INET); }

TEST(DatagramsOfLoopback, AnAddressOfVersion4ThatLooksLikeVersion6IsTakenAsWhatItIs) {
  const Stream stream = stream_of_six("::ffff:127.0.0.1");
  if (stream.right.fd() < 0) GTEST_SKIP() << "no addresses of version 6 here";
  expect_every_length_between(stream, AF_INET);
}

TEST(DatagramsOfLoopback, EveryLengthComesAsItWasByVersion6) {
  const Stream stream = stream_of_six("::1");
  if (stream.right.fd() < 0) GTEST_SKIP() << "no addresses of version 6 here";
  expect_every_length_between(stream, AF_INET6);
}

TEST_F(Datagrams, SequenceNumbersWrapAround) {
  const std::uint32_t last = 0xffffffff;
  for (std::uint32_t number = last - 2; number != 3; ++number) {
    ASSERT_TRUE(left.send({number * 10UL, 1, number}, reinterpret_cast<const std::byte*>("x"), 0)) << number;
    let_through(caught());
    EXPECT_EQ(taken(number), "x") << number;
    left.acknowledged(number + 1, false);
  }
  EXPECT_TRUE(said_again(3).empty());
}

TEST_F(Datagrams, ABurstOfLossesIsOneLoss) {
  for (std::uint32_t number = 0; number < DatagramLink::kWindow; ++number) ASSERT_TRUE(send(number, "lost"));
  const auto begun = std::chrono::steady_clock::now();
  for (std::uint32_t number = 0; number < DatagramLink::kWindow; ++number) left.acknowledged(number + 1, true);
  while (!send(DatagramLink::kWindow, "at last")) std::this_thread::sleep_for(1ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s) << "twice as long for each of eight is 12.8 s";
}

TEST_F(Datagrams, AnOwedAcknowledgementIsSentOnce) {
  EXPECT_FALSE(right.clear_unacknowledged());
  ASSERT_TRUE(send(0, "something"));
  let_through(caught());
  EXPECT_EQ(taken(0), "something");
  EXPECT_TRUE(right.clear_unacknowledged());
  EXPECT_FALSE(right.clear_unacknowledged());
}

TEST(TheRetransmitter, LooksAsLongAsSomethingIsLeftAndThenRests) {
  std::atomic<int> looks{0}, left{3};
  Retransmitter retransmitter([&] {
    ++looks;
    return left.fetch_sub(1) > 1;
  });
  ASSERT_TRUE(comes([&] { return left <= 0; }));
  const int looked = looks;
  EXPECT_GE(looked, 3);
  std::this_thread::sleep_for(5 * DatagramLink::kTick);
  EXPECT_LE(looks, looked + 1) << "it looks although there is nothing";
  left = 3;
  EXPECT_TRUE(comes([&] {
    retransmitter.note();
    return left <= 0;
  }));
}

TEST(TheRetransmitter, IsOneThreadForAllThereAre) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> looks{0}, others{0};
  const auto count = [&](std::atomic<int>& these) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    return ++these > 0;  // there is always something left
  };
  for (int lap = 1; lap <= 2; ++lap) {  // it ends with the last of them, and begins anew
    const Retransmitter one([&] { return count(looks); }), two([&] { return count(looks); });
    auto third = std::make_unique<Retransmitter>([&] { return count(others); });
    const int here = looks, there = others;
    EXPECT_TRUE(comes([&] { return looks >= here + 4 && others >= there + 2; }));
    third = nullptr;
    const int last = others, then = looks;
    EXPECT_TRUE(comes([&] { return looks >= then + 4; }));
    EXPECT_EQ(others, last) << "it has gone";
    const std::lock_guard lock(mutex);
    EXPECT_EQ(threads.size(), 1u);
    threads.clear();
  }
}

TEST(TheRetransmitter, IsWokenUpForOneWhileAnotherRests) {
  std::atomic<int> looks{0}, others{0};
  const Retransmitter resting([&] { return ++others, false; });
  Retransmitter busy([&] { return ++looks, false; });
  ASSERT_TRUE(comes([&] { return looks == 1 && others == 1; }));
  EXPECT_TRUE(comes([&] {
    busy.note();
    return looks >= 3;
  }));
  EXPECT_EQ(others, 1);
}

TEST(TheRetransmitter, LooksAgainWhenThereWasNoMemory) {
  std::atomic<int> looks{0};
  Retransmitter retransmitter([&]() -> bool {
    if (++looks < 3) throw std::bad_alloc();
    return false;
  });
  EXPECT_TRUE(comes([&] { return looks >= 3; }));
}

}  // namespace
}  // namespace collectives::testing
