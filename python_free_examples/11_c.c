/* The library from C99: averages gradients over all ranks while other work continues.   collectives_run -n 4 11_c */
#include <collectives/collectives.h>
#include <stdio.h>
#include <stdlib.h>

enum { kLayers = 3, kCount = 1000 };

/* Prints the message of an error and ends the program. Each thread has the message of its last error. */
static void check(collectives_error error) {
  if (error == COLLECTIVES_SUCCESS) return;
  fprintf(stderr, "%s: %s\n", collectives_error_name(error), collectives_last_error());
  exit(1);
}

int main(void) {
  /* Ranks come from mpirun, srun, torchrun, TF_CONFIG or collectives_run. Without a launcher this process is alone. */
  collectives_communicator* comm;
  check(collectives_communicator_from_environment(NULL, &comm));
  const int rank = collectives_rank(comm), size = collectives_size(comm);

  /* Memory that the other ranks of this host access without a copy. Any other memory works too. */
  collectives_memory* memory;
  check(collectives_memory_allocate(comm, kLayers * kCount * sizeof(float), 0, &memory));
  float* gradients = collectives_memory_data(memory);

  /* Options that are not set come from the communicator. Between hosts, values travel as bf16, in half the bytes. */
  const collectives_options options = {.size = sizeof options, .timeout_seconds = 60, .wire = "bf16"};
  collectives_work* works[kLayers];
  for (int layer = 0; layer < kLayers; ++layer) {
    float* gradient = gradients + layer * kCount;
    for (int i = 0; i < kCount; ++i) gradient[i] = (float)(layer + rank);
    check(collectives_all_reduce_async(comm, gradient, gradient, kCount, COLLECTIVES_F32, COLLECTIVES_AVERAGE, &options,
                                       &works[layer]));
  }
  for (int layer = 0; layer < kLayers; ++layer) {
    check(collectives_work_wait(works[layer]));
    collectives_work_free(works[layer]);
    if (gradients[layer * kCount] != (float)layer + (float)(size - 1) / 2) return 1;
  }

  char* plan;
  check(
      collectives_explain(comm, COLLECTIVES_ALL_REDUCE, kCount, COLLECTIVES_F32, COLLECTIVES_AVERAGE, &options, &plan));
  if (rank == 0) printf("%d ranks averaged %d gradients, by this plan:\n%s", size, kLayers, plan);
  collectives_free(plan);
  collectives_memory_free(memory);
  collectives_communicator_free(comm);
  return 0;
}
