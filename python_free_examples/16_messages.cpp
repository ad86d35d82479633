// Sends messages between two ranks: around a ring, and from all ranks to rank 0.   collectives_run -n 4 16_messages
#include <collectives/collectives.hpp>
#include <cstddef>
#include <cstdio>
#include <vector>

int main() {
  collectives::Communicator comm = collectives::Communicator::from_environment();
  const int next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();

  // All ranks send at the same time. sendrecv() sends and receives together, so ranks do not wait in a circle. A single
  // rank sends to itself.
  const std::vector<int> mine(1000, comm.rank());
  std::vector<int> theirs(mine.size());
  comm.sendrecv(mine, next, theirs, previous);
  for (const int value : theirs) {
    if (value != previous) return 1;
  }

  // A receive from any_source takes the message of any rank, and returns its sender. The tag keeps these messages apart
  // from others.
  constexpr int kTag = 1;
  if (comm.rank() != 0) {
    comm.send(mine, 0, kTag);
    return 0;
  }
  std::vector<bool> heard(static_cast<std::size_t>(comm.size()));
  heard[0] = true;
  for (int count = 1; count < comm.size(); ++count) {
    const collectives::Rank sender = comm.recv(theirs, collectives::any_source, kTag);
    if (theirs[0] != sender || heard[static_cast<std::size_t>(sender)]) return 1;
    heard[static_cast<std::size_t>(sender)] = true;
  }
  std::printf("rank 0 has a message of each of %d other ranks\n", comm.size() - 1);
}
