// A program outside the project, which the packaging tests build: two ranks add numbers, and each checks the sum.
#include <collectives/collectives.hpp>
#include <vector>

int main() {
  auto comm = collectives::Communicator::from_environment();
  std::vector<float> mine(1000, static_cast<float>(comm.rank() + 1)), sum(1000);
  comm.all_reduce(mine, sum);
  return sum == std::vector<float>(1000, 3) ? 0 : 1;
}
