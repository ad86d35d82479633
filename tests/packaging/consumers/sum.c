/* A C program outside the project, which the packaging tests build: two ranks add numbers, and each checks the sum. */
#include <collectives/collectives.h>

int main(void) {
  collectives_communicator* comm;
  float mine, sum = 0;
  if (collectives_communicator_from_environment(NULL, &comm) != COLLECTIVES_SUCCESS) return 1;
  mine = (float)(collectives_rank(comm) + 1);
  if (collectives_all_reduce(comm, &mine, &sum, 1, COLLECTIVES_F32, COLLECTIVES_SUM, NULL) != COLLECTIVES_SUCCESS)
    return 1;
  collectives_communicator_free(comm);
  return sum == 3 ? 0 : 1;
}
