# Tests that run programs on the fake of CUDA: collectives_bench, the benchmark of kernels, the script for machines with
# a GPU, and collectives_info. collectives_bench runs with every collective and backend, with compression, on two
# simulated hosts, and without a GPU.

# This test shows that the benchmark of kernels runs. Its figures are meaningful only on a GPU.
add_executable(gpu_bench_on_fake_cuda ${PROJECT_SOURCE_DIR}/bench/micro/gpu_bench.cpp)
collectives_defaults(gpu_bench_on_fake_cuda)
collectives_hardly_optimised(gpu_bench_on_fake_cuda)
target_include_directories(gpu_bench_on_fake_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(gpu_bench_on_fake_cuda PRIVATE gpu_bench_arguments cuda_kernels_on_fake_cuda collectives fmt::fmt)
add_test(NAME on_fake_cuda.gpu_bench COMMAND gpu_bench_on_fake_cuda --bytes 65536 --elements 20000 --repeats 3)
on_fake_cuda(on_fake_cuda.gpu_bench)
set_tests_properties(on_fake_cuda.gpu_bench PROPERTIES PASS_REGULAR_EXPRESSION "cast-reduce-scale of 4 x f32, fused .* GB/s")

# Runs collectives_bench with ranks that are processes.
set(bench $<TARGET_FILE:collectives_bench> all --buffers device --factor 128 --odd --iterations 2 --warmup 1)
set(every_backend --backend auto,ring,hierarchical,reduce_to_one)
if(COLLECTIVES_SANITIZE)  # device_backend_test runs the other backends under sanitizers
  set(every_backend --backend auto,ring)
endif()
# bench_3_in_streams_of_2_gpus runs the other backends, and device_backend_test the other types and ops.
add_test(NAME on_fake_cuda.bench_4 COMMAND collectives_run -n 4 ${bench} --max-bytes 64K --type f32,bf16
                                          --op sum,average --backend auto,hierarchical)
on_fake_cuda(on_fake_cuda.bench_4)
add_test(NAME on_fake_cuda.bench_3_in_streams_of_2_gpus
         COMMAND collectives_run -n 3 ${bench} --back-to-back --max-bytes 1M ${every_backend})
on_fake_cuda(on_fake_cuda.bench_3_in_streams_of_2_gpus FAKE_CUDA_GPUS=2)
add_test(NAME on_fake_cuda.bench_compressed
         COMMAND collectives_run -n 3 ${bench} --max-bytes 1M --compress bf16,f16,int8,top_k:1% --force)
on_fake_cuda(on_fake_cuda.bench_compressed)
add_test(NAME on_fake_cuda.bench_on_2_hosts
         COMMAND collectives_run -n 4 sh ${PROJECT_SOURCE_DIR}/tests/support/on_fake_hosts.sh 2 ${bench} --max-bytes 1M
                 --compress none,bf16,top_k:1% --force)
on_fake_cuda(on_fake_cuda.bench_on_2_hosts)
add_test(NAME on_fake_cuda.bench_threads_4 COMMAND collectives_bench all --buffers device --bootstrap threads:4 --factor 64
                                                  --max-bytes 64K --iterations 2)
on_fake_cuda(on_fake_cuda.bench_threads_4)
add_test(NAME on_fake_cuda.bench_without_a_gpu COMMAND collectives_run -n 2 ${bench})
on_fake_cuda(on_fake_cuda.bench_without_a_gpu FAKE_CUDA_GPUS=0)
set_tests_properties(on_fake_cuda.bench_without_a_gpu PROPERTIES PASS_REGULAR_EXPRESSION
  "rank 0: --buffers device: there is no GPU to be seen: no CUDA-capable device is detected; see CUDA_VISIBLE_DEVICES")
if(NOT COLLECTIVES_SANITIZE)  # the part of the script that needs no GPU
  add_test(NAME on_fake_cuda.script COMMAND env GPU_BUILD=${PROJECT_BINARY_DIR} GPU_RANKS=2 GPU_MOST=64K GPU_TYPES=f32
                                           ${PROJECT_SOURCE_DIR}/scripts/gpu.sh --run collectives)
  on_fake_cuda(on_fake_cuda.script)
  set_tests_properties(on_fake_cuda.script PROPERTIES PROCESSORS 2 PASS_REGULAR_EXPRESSION
                                                     "in a stream, ranks 2 +wrong elements: 0")
endif()
add_test(NAME on_fake_cuda.info COMMAND collectives_info)
on_fake_cuda(on_fake_cuda.info)
set_tests_properties(on_fake_cuda.info PROPERTIES PASS_REGULAR_EXPRESSION "stand-in for a GPU")
