// A wire over point-to-point MPI. Per peer a few send frames, each with its own MPI_Isend in flight, and one receive
// frame: what arrives earlier than it is asked for waits inside MPI. Data and control travel under two MPI tags of one
// communicator, so neither overtakes itself and neither holds up the other.
//
// A message is its tag word followed by the payload; MPI knows the length.
#pragma once

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/wait.hpp"
#include "collectives/transport.hpp"

namespace collectives {

/// Throws Error{system} with MPI's own words unless `code` is MPI_SUCCESS. `call`: "MPI_Isend".
void check_mpi(int code, std::string_view call);

/// Keeps memory that MPI may still write to or read from alive until the process ends.
void keep_for_mpi(std::shared_ptr<void> memory);

class MpiTransport final : public Wire {
 public:
  /// Member i of `members`, ranks of `*comm` of which the calling process is one, is rank i here. `*comm` returns
  /// errors (MPI_ERRORS_RETURN); messages under two of its tags, which `context` chooses, belong to this transport.
  MpiTransport(std::shared_ptr<const MPI_Comm> comm, std::vector<Rank> members, std::size_t context,
               std::size_t frame_bytes);
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  /// Waits a moment for what is in flight; memory that MPI still uses then is never freed.
  ~MpiTransport() override;

  std::string_view name() const noexcept override { return "mpi"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  std::byte* acquire_frame(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  const Message* receive(Rank from) override;
  void release(Rank from) override;
  bool sending() override;
  /// Waits until MPI has taken every message over; MPI_Finalize delivers what it has taken.
  void flush(Deadline) override;
  void post_control(Rank to, std::string_view text) override;
  /// With MPI_THREAD_MULTIPLE.
  bool control_is_thread_safe() const noexcept override { return any_thread_; }
  std::optional<std::pair<Rank, std::string>> poll_control() override;
  void wait_for_event(std::chrono::nanoseconds) override { backoff_.wait(); }

 private:
  static constexpr std::size_t kSendFrames = 4;  // per peer
  static constexpr std::size_t kAlignment = 64;  // of the payload, bytes
  static constexpr std::size_t kMaxControlsInFlight = 256;

  /// One message's memory, made at first use, and the operation that owns it meanwhile. The tag word lies directly in
  /// front of the aligned payload.
  struct Frame {
    std::shared_ptr<std::byte> memory;
    MPI_Request request = MPI_REQUEST_NULL;

    void allocate(std::size_t payload_bytes);
    std::byte* payload() const { return memory.get() + kAlignment; }
    std::byte* message() const { return payload() - sizeof(std::uint64_t); }
  };
  struct Peer {
    std::array<Frame, kSendFrames> sends;
    std::size_t next = 0;  // send frame to stage; those behind it are in flight, oldest first
    bool acquired = false;
    Frame receive;
    std::optional<Message> message;  // arrived, not released
  };
  struct Control {
    Rank peer = 0;
    std::shared_ptr<std::string> text;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  int mpi_rank(Rank rank) const { return members_[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<const MPI_Comm> comm_;
  std::vector<Rank> members_;
  std::size_t frame_bytes_;
  int data_tag_ = 0, control_tag_ = 0;
  std::vector<Peer> peers_;
  Backoff backoff_{kLongestSleepBetweenCalls};
  bool any_thread_ = false;
  std::mutex controls_mutex_;  // of those on their way out
  std::list<Control> controls_out_;
  std::optional<Control> control_in_;
};

}  // namespace collectives
