// Sends each value to the rank that owns it, and its square back.   collectives_run -n 4 17_all_to_all_v
//
// Programs for mixtures of experts, hash joins and particle simulations exchange data in this manner. A rank knows how
// many values it has for each other rank, but not how many values it will get.
#include <collectives/collectives.hpp>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <vector>

int main() {
  collectives::Communicator comm = collectives::Communicator::from_environment();
  const auto ranks = static_cast<std::size_t>(comm.size());

  // The values are sorted by owner: q + 1 values for rank q.
  std::vector<std::size_t> sent(ranks);
  std::vector<float> values;
  for (std::size_t owner = 0; owner < ranks; ++owner) {
    sent[owner] = owner + 1;
    values.insert(values.end(), sent[owner], static_cast<float>(comm.rank() + 1));
  }

  // First, the ranks exchange their counts, one for each pair of ranks.
  std::vector<std::size_t> received(ranks);
  comm.all_to_all(sent, received);

  std::vector<float> owned(std::accumulate(received.begin(), received.end(), std::size_t{0}));
  comm.all_to_all_v(values, sent, owned, received);
  for (float& value : owned) value *= value;

  // The way back has the same counts in the other order.
  std::vector<float> squares(values.size());
  comm.all_to_all_v(owned, received, squares, sent);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (squares[i] != values[i] * values[i]) return 1;
  }
  std::printf("rank %d sent %zu values and computed %zu\n", comm.rank(), values.size(), owned.size());
}
