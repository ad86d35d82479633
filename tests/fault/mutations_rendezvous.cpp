// Targets of mutations: greetings and records of the rendezvous over TCP. Each input is the bytes that one process
// sends over its connection. The connection is a pair of sockets, so no port is opened.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "bootstrap/greetings.hpp"
#include "bootstrap/records.hpp"
#include "bootstrap/rendezvous_link.hpp"
#include "fault/mutations.hpp"

namespace collectives::testing {
namespace {

using tcp::Kind;
using tcp::Link;
using tcp::Socket;

constexpr int kRanks = 4;
constexpr std::string_view kPlaceOfNumber = "\1\2NUMBER\3\4";  // becomes the random number of rank 0
constexpr std::size_t kMaxPayload = tcp::max_contribution(kRanks);

std::array<Socket, 2> make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    throw std::runtime_error("socketpair");
  return {Socket(ends[0]), Socket(ends[1])};
}

/// Sends as many bytes as the socket takes now, and removes them from `bytes`.
void send_some(const Socket& socket, std::string_view& bytes) {
  const ssize_t sent = ::send(socket.fd(), bytes.data(), std::min<std::size_t>(bytes.size(), 1 << 16), MSG_NOSIGNAL);
  bytes.remove_prefix(sent > 0 ? static_cast<std::size_t>(sent) : 0);
  if (bytes.empty()) ::shutdown(socket.fd(), SHUT_WR);
}

World place() { return {.rank = 0, .size = kRanks, .address = "127.0.0.1", .port = 29500, .source = "RANK"}; }

std::string frame_of(Kind kind, std::string_view payload) { return *tcp::make_record(kind, payload); }

std::string greeting(Rank rank, int size, const Job& job = {}) {
  World world = place();
  world.rank = rank;
  world.size = size;
  world.job = job;
  return frame_of(Kind::hello, tcp::hello_of(world));
}

/// Lets rank 0 examine one connection to its end. `failed` means that the rendezvous has failed already.
MutationOutcome examine(std::string_view input, bool failed) {
  const World world = place();
  tcp::Greetings greetings(world);
  if (failed) greetings.answer_with(tcp::make_record(Kind::failure, tcp::failure_bytes({Errc::bootstrap, 2, "late"})));
  auto [mine, theirs] = make_pair();
  greetings.add(std::move(mine));
  const std::vector<bool> members{true, false, false, true};
  // The hello alone comes first, because the number that answers it is a part of the proof.
  const std::size_t hello_bytes = std::min(input.size(), greeting(1, kRanks).size());
  std::string_view hello = input.substr(0, hello_bytes);
  ::send(theirs.fd(), hello.data(), hello.size(), MSG_NOSIGNAL);
  greetings.step(members);
  tcp::Header header{};
  std::array<char, 8> number{};
  std::string rest(input.substr(hello_bytes));
  if (::recv(theirs.fd(), &header, sizeof header, 0) == sizeof header && header.kind == Kind::seen &&
      ::recv(theirs.fd(), number.data(), number.size(), 0) == ssize_t{number.size()}) {
    if (const auto at = rest.find(kPlaceOfNumber); at != rest.npos)
      rest.replace(at, kPlaceOfNumber.size(), number.data(), number.size());
  }
  std::string_view left = rest;
  for (int turn = 0; turn < 4096 && greetings.size() > 0; ++turn) {
    send_some(theirs, left);
    for (const auto& arrival : greetings.step(members)) {
      if (arrival.rank < 1 || arrival.rank >= kRanks - 1) throw std::runtime_error("a rank that may not arrive");
      return MutationOutcome::accepted("member");
    }
  }
  return MutationOutcome::dropped(greetings.last_refusal());
}

MutationOutcome greet(std::string_view input) { return examine(input, false); }
MutationOutcome greet_late(std::string_view input) { return examine(input, true); }

/// Gives one record to every function that reads payloads.
void read_payload(const tcp::Record& record, std::string& path) {
  const auto note = [&](bool read) { path += read ? '1' : '0'; };
  path += static_cast<char>('a' + static_cast<int>(static_cast<std::uint64_t>(record.kind) % 16));
  note(tcp::read_hello(record.payload).has_value());
  note(tcp::read_failure(record.payload).has_value());
  note(tcp::read_seconds(record.payload).has_value());
  note(tcp::read_contributions(record.payload, kRanks).has_value());
  const auto ranks = tcp::read_ranks(record.payload, kRanks);
  note(ranks.has_value());
  if (ranks && !std::ranges::all_of(*ranks, [](Rank rank) { return rank >= 0 && rank < kRanks; }))
    throw std::runtime_error("a rank that does not exist");
}

/// Reads all records of one connection.
MutationOutcome read_records(std::string_view input) {
  auto [mine, theirs] = make_pair();
  Link link(std::move(mine), kMaxPayload);
  std::string path;
  int records = 0;
  for (int turn = 0; turn < 4096 && link.lost().empty(); ++turn) {
    send_some(theirs, input);
    while (const auto record = link.next()) {
      ++records;
      if (record->payload.size() > kMaxPayload) throw std::runtime_error("a record that is too long");
      if (path.size() < 128) read_payload(*record, path);
    }
  }
  return records > 0 ? MutationOutcome::accepted(path) : MutationOutcome::dropped(link.lost());
}

}  // namespace

std::vector<MutationTarget> rendezvous_targets() {
  set_log_level(LogLevel::off);
  const std::string proof = frame_of(Kind::proof, kPlaceOfNumber);
  const Job job = job_of({{"COLLECTIVES_JOB", "other"}}, "");
  const double seconds = 1.5;
  const std::vector<std::string> greetings{greeting(1, kRanks) + proof,
                                           greeting(3, kRanks) + proof,
                                           greeting(2, kRanks),
                                           greeting(0, kRanks),
                                           greeting(1, 7),
                                           greeting(1, kRanks, job),
                                           greeting(1, kRanks) + proof + frame_of(Kind::give_up, "12345678"),
                                           greeting(1, kRanks) + frame_of(Kind::contribution, "x")};
  return {{"greetings", greetings, greet},
          {"greetings after a failure", greetings, greet_late, 2},
          {"rendezvous records",
           {frame_of(Kind::failure, tcp::failure_bytes({Errc::bootstrap, 1, "rank 1 left the rendezvous"})),
            frame_of(Kind::give_up, tcp::bytes_of(seconds)), frame_of(Kind::missing, tcp::ranks_bytes({1, 2})),
            frame_of(Kind::contributions, tcp::contributions_of({"a", "", "{}", std::string(100, 'x')})),
            frame_of(Kind::contribution, "{}") + frame_of(Kind::farewell, ""), frame_of(Kind::seen, "12345678"),
            frame_of(Kind::welcome, "")},
           read_records}};
}

}  // namespace collectives::testing
