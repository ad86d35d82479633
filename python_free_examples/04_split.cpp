// Splits a communicator into the even and the odd ranks.   collectives_run -n 4 04_split
#include <collectives/collectives.hpp>
#include <cstdio>
#include <vector>

int main() {
  collectives::Communicator world = collectives::Communicator::from_environment();

  // Ranks with the same color form a new communicator. There, they are numbered in the order of their ranks in `world`,
  // because all keys are equal.
  const int color = world.rank() % 2;
  collectives::Communicator half = *world.split(color);

  const std::vector<int> mine{world.rank()};
  std::vector<int> members(static_cast<std::size_t>(half.size()));
  half.all_gather(mine, members);

  for (int i = 0; i < half.size(); ++i) {
    if (members[static_cast<std::size_t>(i)] != 2 * i + color) return 1;
  }
  if (half.rank() == 0) {
    std::printf("the %s half:", color == 0 ? "even" : "odd");
    for (const int member : members) std::printf(" %d", member);
    std::printf("\n");
  }
}
