# mpi4py: least squares by conjugate gradients, and k-means, in Python. The ranks share the rows. Each step all-reduces
# vectors over the columns or the centres.
#
#   mpi4py             preloads MPI, which comes with the module, after the drop-in
#   mpi4py_forwarded   does not, so the drop-in forwards every call and says so
packages='python3 python3-mpi4py python3-numpy'
mpis='openmpi'
last_digit=1e-12
[ "$program" = mpi4py_forwarded ] || preload=libmpi.so.40
prepare() {
  cat >program.py <<'END'
import sys
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rows, columns, clusters = int(sys.argv[1]), 60, 7
random = np.random.default_rng(7)
data = None
if world.rank == 0:
    data = random.normal(size=(rows, columns)) + 6 * random.integers(0, 2, size=(rows, 1)) * np.eye(columns)[0]
parts = [rows // world.size + (r < rows % world.size) for r in range(world.size)]
mine = np.empty((parts[world.rank], columns))
world.Scatterv([data, [part * columns for part in parts], None, MPI.DOUBLE], mine, root=0)
truth = np.arange(columns, dtype=float)
wanted = mine @ truth


def total(values):
    result = np.empty_like(values)
    world.Allreduce(values, result)
    return result


# Solves A'A x = A'b.
x = np.zeros(columns)
residual = total(mine.T @ wanted)
direction, norm, steps = residual.copy(), residual @ residual, 0
start = norm
while norm > 1e-22 * start and steps < 500:
    image = total(mine.T @ (mine @ direction))
    step = norm / (direction @ image)
    x += step * direction
    residual -= step * image
    previous, norm = norm, residual @ residual
    direction = residual + norm / previous * direction
    steps += 1
off = np.abs(x - truth).max()

centres = np.empty((clusters, columns))
if world.rank == 0:
    centres[:] = data[:clusters]
world.Bcast(centres, root=0)
for rounds in range(int(sys.argv[2])):
    distances = ((mine[:, None, :] - centres) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1)
    sums = np.zeros((clusters, columns))
    np.add.at(sums, nearest, mine)
    counts = np.bincount(nearest, minlength=clusters)
    request = world.Iallreduce(MPI.IN_PLACE, sums)
    counts = total(counts)
    request.Wait()
    centres = sums / np.maximum(counts, 1)[:, None]
inertia = world.allreduce(float(distances.min(axis=1).sum()))
everyone = world.allgather(centres.tobytes())
if world.rank == 0:
    print("check least squares", "found" if off < 1e-6 else f"off by {off}")
    print("check ranks", "agree" if len(set(everyone)) == 1 else "disagree")
    print("check sizes", " ".join(map(str, counts)))
    print(f"number inertia {inertia:.17g}")
    for c in range(clusters):
        print(f"number centre{c} {np.linalg.norm(centres[c]):.17g}")
    for c in range(0, columns, 10):
        print(f"number solution{c} {x[c]:.17g} {columns}")
END
  if [ "$size" = check ]; then
    command=(/usr/bin/python3 program.py 2000 100)
  else
    command=(/usr/bin/python3 program.py 20000 60)
  fi
}
checks() { grep '^check' out; }
digits() { sed -n 's/^number //p' out; }
