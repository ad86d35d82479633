// Implementation of the wire over MPI. A wire is a transport for messages between hosts. The wire over MPI sends
// messages by MPI_Isend, and receives messages with data by MPI_Irecv.
//
// A frame is memory for one message, together with the MPI request that sends or receives it. For each peer, there are
// four frames to send and one to receive.
#include "mpi/transport.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <mutex>
#include <new>

#include "collectives/error.hpp"

namespace collectives {
namespace {

/// Returns whether the operation has completed. If so, sets `request` to MPI_REQUEST_NULL.
bool finished(MPI_Request& request, MPI_Status* status = MPI_STATUS_IGNORE) {
  int done = 0;
  check_mpi(MPI_Test(&request, &done, status), "MPI_Test");
  return done != 0;
}

}  // namespace

void check_mpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(Errc::system, fmt::format("{}: {}", call, std::string_view(text, static_cast<std::size_t>(length))));
}

void keep_for_mpi(std::shared_ptr<void> memory) {
  static std::mutex mutex;
  static auto& kept =
      *new std::vector<std::shared_ptr<void>>;  // Never destroyed, because MPI may outlive static objects.
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

void MpiTransport::Frame::allocate(std::size_t payload_bytes) {
  if (memory) return;
  const std::size_t rounded = (payload_bytes + kAlignment - 1) / kAlignment * kAlignment;
  memory.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, kAlignment + rounded)), std::free);
  if (!memory) throw std::bad_alloc();
}

MpiTransport::MpiTransport(std::shared_ptr<const MPI_Comm> comm, std::vector<Rank> members, std::size_t context,
                           std::size_t frame_bytes)
    : comm_(std::move(comm)), members_(std::move(members)), frame_bytes_(frame_bytes), peers_(members_.size()) {
  void* attribute = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(*comm_, MPI_TAG_UB, &attribute, &found), "MPI_Comm_get_attr");
  const auto largest_tag = static_cast<std::size_t>(found ? *static_cast<int*>(attribute) : 32767);
  if (context > (largest_tag - 1) / 2) {
    throw Error(Errc::unsupported, fmt::format("transport mpi: context {} needs MPI tag {}, this MPI's largest is {}",
                                               context, 2 * context + 1, largest_tag));
  }
  if (frame_bytes > INT_MAX - sizeof(std::uint64_t)) {
    throw Error(Errc::unsupported, fmt::format("transport mpi: frames of {} bytes; the most is {}", frame_bytes,
                                               INT_MAX - sizeof(std::uint64_t)));
  }
  data_tag_ = static_cast<int>(2 * context);
  control_tag_ = data_tag_ + 1;
  int threads = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&threads), "MPI_Query_thread");
  any_thread_ = threads == MPI_THREAD_MULTIPLE;
}

MpiTransport::~MpiTransport() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;  // MPI uses no memory any more.

  struct InFlight {
    MPI_Request request;
    std::shared_ptr<void> memory;
  };
  std::vector<InFlight> in_flight;
  const auto add = [&](MPI_Request request, const std::shared_ptr<void>& memory) {
    if (request != MPI_REQUEST_NULL) in_flight.push_back({request, memory});
  };
  for (Peer& peer : peers_) {
    for (Frame& frame : peer.sends) add(frame.request, frame.memory);
    if (peer.receive.request != MPI_REQUEST_NULL) MPI_Cancel(&peer.receive.request);
    add(peer.receive.request, peer.receive.memory);
  }
  for (Control& control : controls_out_) add(control.request, control.text);
  if (control_in_) add(control_in_->request, control_in_->text);

  const Deadline deadline = Deadline::in(std::chrono::milliseconds(100));
  Backoff backoff(kLongestSleepBetweenCalls);
  while (true) {
    std::erase_if(in_flight, [](InFlight& operation) {
      int done = 0;
      return MPI_Test(&operation.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
    });
    if (in_flight.empty()) return;
    if (deadline.passed()) break;
    backoff.wait();
  }
  for (InFlight& operation : in_flight) keep_for_mpi(std::move(operation.memory));
}

std::byte* MpiTransport::acquire_frame(Rank to) {
  Peer& receiver = peer(to);
  Frame& frame = receiver.sends[receiver.next];
  if (!receiver.acquired) {
    if (frame.request != MPI_REQUEST_NULL && !finished(frame.request)) return nullptr;
    frame.allocate(frame_bytes_);
    receiver.acquired = true;
  }
  return frame.payload();
}

void MpiTransport::send(Rank to, std::uint64_t tag, std::size_t bytes) {
  Peer& receiver = peer(to);
  Frame& frame = receiver.sends[receiver.next];
  std::memcpy(frame.message(), &tag, sizeof tag);
  check_mpi(MPI_Isend(frame.message(), static_cast<int>(sizeof tag + bytes), MPI_BYTE, mpi_rank(to), data_tag_, *comm_,
                      &frame.request),
            "MPI_Isend");
  receiver.acquired = false;
  receiver.next = (receiver.next + 1) % kSendFrames;
}

const Message* MpiTransport::receive(Rank from) {
  Peer& sender = peer(from);
  if (!sender.message) {
    Frame& frame = sender.receive;
    constexpr std::size_t kTagBytes = sizeof(Message::tag);
    if (frame.request == MPI_REQUEST_NULL) {
      frame.allocate(frame_bytes_);
      check_mpi(MPI_Irecv(frame.message(), static_cast<int>(kTagBytes + frame_bytes_), MPI_BYTE, mpi_rank(from),
                          data_tag_, *comm_, &frame.request),
                "MPI_Irecv");
    }
    MPI_Status status;
    if (!finished(frame.request, &status)) return nullptr;
    int arrived = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &arrived), "MPI_Get_count");
    Message message{.tag = 0, .data = frame.payload(), .bytes = static_cast<std::size_t>(arrived) - kTagBytes};
    std::memcpy(&message.tag, frame.message(), kTagBytes);
    sender.message = message;
    backoff_.reset();
  }
  return &*sender.message;
}

void MpiTransport::release(Rank from) { peer(from).message.reset(); }

bool MpiTransport::sending() {
  return std::ranges::any_of(peers_, [](Peer& peer) {
    return std::ranges::any_of(
        peer.sends, [](Frame& frame) { return frame.request != MPI_REQUEST_NULL && !finished(frame.request); });
  });
}

void MpiTransport::flush(Deadline deadline) {
  Backoff backoff(kLongestSleepBetweenCalls);
  while (true) {
    std::vector<Rank> waiting;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      for (Frame& frame : peers_[rank].sends) {
        if (frame.request != MPI_REQUEST_NULL && !finished(frame.request)) waiting.push_back(static_cast<Rank>(rank));
      }
    }
    {
      const std::lock_guard lock(controls_mutex_);
      for (Control& control : controls_out_) {
        if (control.request != MPI_REQUEST_NULL && !finished(control.request)) waiting.push_back(control.peer);
      }
    }
    if (waiting.empty()) return;
    if (deadline.passed()) {
      std::sort(waiting.begin(), waiting.end());
      waiting.erase(std::unique(waiting.begin(), waiting.end()), waiting.end());
      throw Error(Errc::timeout,
                  fmt::format("transport mpi: rank {} has not taken its messages", fmt::join(waiting, ", ")), kNoRank,
                  waiting.front());
    }
    backoff.wait();
  }
}

void MpiTransport::post_control(Rank to, std::string_view text) {
  const std::lock_guard lock(controls_mutex_);
  std::erase_if(controls_out_, [](Control& control) { return finished(control.request); });
  if (controls_out_.size() == kMaxControlsInFlight) return;
  Control& control = controls_out_.emplace_back(Control{.peer = to, .text = std::make_shared<std::string>(text)});
  const int code = MPI_Isend(control.text->data(), static_cast<int>(control.text->size()), MPI_BYTE, mpi_rank(to),
                             control_tag_, *comm_, &control.request);
  if (code != MPI_SUCCESS) controls_out_.pop_back();
}

std::optional<std::pair<Rank, std::string>> MpiTransport::poll_control() {
  if (!control_in_) {
    int found = 0;
    MPI_Message message;
    MPI_Status status;
    check_mpi(MPI_Improbe(MPI_ANY_SOURCE, control_tag_, *comm_, &found, &message, &status), "MPI_Improbe");
    if (!found) return std::nullopt;
    int bytes = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    const auto sender = std::find(members_.begin(), members_.end(), status.MPI_SOURCE) - members_.begin();
    control_in_ = Control{.peer = static_cast<Rank>(sender),
                          .text = std::make_shared<std::string>(static_cast<std::size_t>(bytes), '\0')};
    check_mpi(MPI_Imrecv(control_in_->text->data(), bytes, MPI_BYTE, &message, &control_in_->request), "MPI_Imrecv");
  }
  if (!finished(control_in_->request)) return std::nullopt;
  auto arrived = std::make_pair(control_in_->peer, std::move(*control_in_->text));
  control_in_.reset();
  return arrived;
}

}  // namespace collectives
